"""Each setting against forgetting does what it says; a run with it resumes to the same bytes."""

import json

import pytest
import torch

from beam_jobs.job.errors import UserError
from model.pretrain import run
from model.pretraining.adaptation.config import AdaptationConfig
from model.tracking.metrics_log import read_metrics
from tests.model.pretraining.adaptation.published import (
    read_origin,
    read_weights,
    train,
    write_all,
)
from tests.model.pretraining.termination import terminated_at

EACH = {
    "head_steps": "0.5",
    "head_tokens": "1000",
    "trunk_learning_rate": "1e-4",
    "layer_decay": "0.5",
    "freeze_embeddings": "true",
    "origin_pull": "10",
    "origin_distillation": "2",
    "origin_average": "0.3",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("made"))


def measure_moves(made, output):
    """Return how far each weight of the trunk is from the origin."""
    trained = read_weights(output)
    return {n: float((trained[n] - t).abs().max()) for n, t in read_origin(made).items()}


def test_in_the_first_steps_the_head_alone_learns(made, tmp_path):
    train(made, tmp_path / "a", "head_steps=0.9", steps=9)  # 9 steps of 10 parts: progress ≤ 0.9
    assert set(measure_moves(made, tmp_path / "a").values()) == {0.0}
    losses = [line["mlm_loss"] for line in read_metrics(tmp_path / "a")]
    assert losses[-1] < losses[0]
    train(made, tmp_path / "b", "head_steps=0.5", steps=9)
    assert min(measure_moves(made, tmp_path / "b").values()) > 0
    train(made, tmp_path / "c", "head_steps=0.9", "head_tokens=100", steps=9)  # less than a step
    assert min(measure_moves(made, tmp_path / "c").values()) > 0


@pytest.mark.parametrize(("tokens", "share"), [(500_000, 0.4), (4_000_000, 0.1), (0, 0.4)])
def test_a_long_run_teaches_its_head_alone_for_so_many_tokens(tokens, share):
    adaptation = AdaptationConfig(head_steps=0.4, head_tokens=400_000 if tokens else 0)
    assert adaptation.shorten_head_steps(tokens).head_steps == share


def test_the_trunk_has_its_own_rate_and_lower_layers_lower_ones(made, tmp_path):
    train(made, tmp_path / "slow", "trunk_learning_rate=1e-6")
    assert 0 < max(measure_moves(made, tmp_path / "slow").values()) < 1e-4
    train(made, tmp_path / "layers", "layer_decay=0.1", "weight_decay=0")
    moves = measure_moves(made, tmp_path / "layers")
    place = "electra.encoder.layer.{}.output.dense.weight"
    word = "electra.embeddings.word_embeddings.weight"
    assert moves[place.format(1)] > 3 * moves[place.format(0)] > 9 * moves[word] > 0


def test_frozen_embeddings_stay_bit_for_bit(made, tmp_path):
    train(made, tmp_path, "freeze_embeddings=true")
    moves = measure_moves(made, tmp_path)
    assert {m for name, m in moves.items() if "embeddings." in name} == {0.0}
    assert min(m for name, m in moves.items() if "encoder." in name) > 0


def test_the_pull_leads_back_to_the_origin(made, tmp_path):
    free, pulled, held = (tmp_path / name for name in ("free", "pulled", "held"))
    train(made, free)
    train(made, pulled, "origin_pull=100")  # a tenth of the way at the highest rate
    train(made, held, "origin_pull=1e9")
    far, near, none = (sum(measure_moves(made, output).values()) for output in (free, pulled, held))
    assert 0 == none < near < 0.8 * far


def test_the_states_stay_near_the_origins(made, tmp_path):
    distances = {}
    for weight in ("1e-9", "100"):
        output = tmp_path / weight
        train(made, output, f"origin_distillation={weight}", "dropout=0")
        lines = [line for line in read_metrics(output) if "origin_distance" in line]
        assert lines[0]["origin_distance"] == pytest.approx(0, abs=1e-6)
        distances[weight] = lines[-1]["origin_distance"]
        last = lines[-1]
        expected = last["mlm_loss"] + float(weight) * last["origin_distance"]
        assert last["loss"] == pytest.approx(expected, rel=1e-5)
    assert distances["100"] < 0.5 * distances["1e-9"]


def test_what_is_written_is_the_average_and_the_checkpoints_are_not(made, tmp_path):
    train(made, tmp_path / "own")
    train(made, tmp_path / "mean", "origin_average=0.25")
    own, mean = read_weights(tmp_path / "own"), read_weights(tmp_path / "mean")
    for name, origin in read_origin(made).items():
        torch.testing.assert_close(mean[name], 0.25 * origin + 0.75 * own[name])
    before = read_weights(tmp_path / "mean")
    train(made, tmp_path / "mean", "origin_average=0.25")  # done already: written again
    after = read_weights(tmp_path / "mean")
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


@pytest.mark.parametrize("name", EACH)
def test_terminated_it_continues_to_the_same_bytes(made, tmp_path, name):
    chosen = (f"{name}={EACH[name]}", "--probe", str(made / "corpus"), "validate_every=4")
    train(made, tmp_path / "whole", *chosen, steps=10)
    with terminated_at(7), pytest.raises(SystemExit):
        train(made, tmp_path / "cut", *chosen, steps=10)
    train(made, tmp_path / "cut", *chosen, steps=10)
    file = "encoder/model.safetensors"
    assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    probes = [
        {line["step"]: line["probe_accuracy"] for line in read_metrics(output) if PROBE in line}
        for output in (tmp_path / "whole", tmp_path / "cut")
    ]
    assert probes[0] == probes[1]
    with pytest.raises(UserError, match=f"checkpoints of another run: {name} was "):
        train(made, tmp_path / "cut", *chosen[1:], steps=10)


PROBE = "probe_accuracy"


@pytest.mark.parametrize("name", EACH)
def test_refused_where_training_begins_with_nothing(made, tmp_path, name):
    words = ["--shards", str(made / "shards"), "--output", str(tmp_path), "--preset", "tiny"]
    with pytest.raises(UserError, match=f"--set {name} has no effect where --start-from is none"):
        run([*words, "--set", f"{name}={EACH[name]}"])
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_a_run_without_them_is_still_continued(made, tmp_path):
    """What a setting is by default is not part of a run's identity: runs before it had none."""
    train(made, tmp_path)
    state = json.loads((tmp_path / "checkpoints" / "step-00000020" / "state.json").read_text())
    assert not set(EACH) & set(state["identity"])
