"""Each setting against forgetting does what it says; a run with it resumes to the same bytes."""

import pytest
import torch

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.config import AdaptationConfig
from tests.model.pretraining.adaptation.published import (
    ENTRIES,
    read_origin,
    read_weights,
    train,
    write_corpus,
)
from tests.model.pretraining.runs import pretrain, read_curve
from tests.model.pretraining.termination import terminated_at
from tests.model.synthetic_shards import write_shards

EACH = {"head_steps": 0.5, "head_tokens": 1000}
EACH |= {"trunk_learning_rate": 1e-4, "origin_average": 0.3}


def measure_moves(made, output):
    """Return how far each weight of the trunk is from the origin."""
    trained = read_weights(output)
    return {n: float((trained[n] - t).abs().max()) for n, t in read_origin(made).items()}


def test_in_the_first_steps_the_head_alone_learns(made, tmp_path):
    train(made, tmp_path / "a", head_steps=0.9, steps=9)  # 9 steps of 10 parts: progress ≤ 0.9
    assert set(measure_moves(made, tmp_path / "a").values()) == {0.0}
    losses = [*read_curve(tmp_path / "a", "mlm_loss").values()]
    assert losses[-1] < losses[0]
    train(made, tmp_path / "b", head_steps=0.5, steps=9)
    assert min(measure_moves(made, tmp_path / "b").values()) > 0
    train(made, tmp_path / "c", head_steps=0.9, head_tokens=100, steps=9)  # less than a step
    assert min(measure_moves(made, tmp_path / "c").values()) > 0


@pytest.mark.parametrize(("tokens", "share"), [(500_000, 0.4), (4_000_000, 0.1), (0, 0.4)])
def test_a_long_run_teaches_its_head_alone_for_so_many_tokens(tokens, share):
    adaptation = AdaptationConfig(head_steps=0.4, head_tokens=400_000 if tokens else None)
    assert adaptation.shorten_head_steps(tokens).head_steps == share


def test_the_trunk_has_its_own_rate(made, tmp_path):
    train(made, tmp_path, trunk_learning_rate=1e-6, steps=5)
    assert 0 < max(measure_moves(made, tmp_path).values()) < 1e-4


def test_what_is_written_is_the_average_and_the_checkpoints_are_not(made, tmp_path):
    train(made, tmp_path / "own")
    train(made, tmp_path / "mean", origin_average=0.25)
    own, mean = read_weights(tmp_path / "own"), read_weights(tmp_path / "mean")
    for name, origin in read_origin(made).items():
        torch.testing.assert_close(mean[name], 0.25 * origin + 0.75 * own[name])
    before = read_weights(tmp_path / "mean")
    train(made, tmp_path / "mean", origin_average=0.25)  # done already: written again
    after = read_weights(tmp_path / "mean")
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


@pytest.mark.parametrize("rate", [1e-3, 0.1])
def test_the_loss_told_is_that_of_the_weights_that_are_written(made, tmp_path, rate):
    """Of the average, and of the loaded trunk where the probe refuses that one."""
    dev = write_shards(tmp_path / "dev", sequences=16, size=ENTRIES, split="dev")
    write_corpus(tmp_path / "corpus", reviews=600)
    words = ("--validation", dev, "--probe", tmp_path / "corpus")
    chosen = {"origin_average": 0.1, "validate_every": 20, "learning_rate": rate}
    result = train(made, tmp_path / "out", *words, **chosen)
    assert result["written_step"] == (0 if rate == 0.1 else 20)
    words = ("--validation", dev, "--start-from", result["encoder"])
    settings = {"batch": 8, "precision": "fp32", "objective": "mlm", "learning_rate": 1e-12}
    settings |= {"validate_every": 1}
    again = pretrain(made / "shards", tmp_path / "again", *words, steps=1, **settings)
    assert result["validation_loss"] == pytest.approx(again["validation_loss"], rel=1e-4)


def test_terminated_it_continues_to_the_same_bytes(made, tmp_path):
    def train_here(name, **settings):
        chosen = EACH | {"validate_every": 4} | settings
        train(made, tmp_path / name, "--probe", made / "corpus", steps=10, **chosen)

    train_here("whole")
    with terminated_at(5), pytest.raises(SystemExit):
        train_here("cut")
    train_here("cut")
    file = "encoder/model.safetensors"
    assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    probes = [read_curve(tmp_path / name, "probe_accuracy") for name in ("whole", "cut")]
    assert probes[0] == probes[1]
    with pytest.raises(UserError, match=r"head_steps.*\b0\.5\b"):
        train_here("cut", head_steps=0)


def test_refused_where_training_begins_with_nothing(made, tmp_path):
    with pytest.raises(UserError, match="`head_steps`"):
        pretrain(made / "shards", tmp_path, head_steps=0.1)
    assert not list(tmp_path.iterdir())
