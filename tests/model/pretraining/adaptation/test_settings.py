"""Settings of a training from loaded weights; a run with them resumes to the same bytes."""

import pytest
import torch

from amazon_electra.beam_jobs.core.errors import UserError
from tests.model.pretraining.adaptation.published import (
    read_origin,
    read_weights,
    train,
)
from tests.model.pretraining.runs import pretrain, read_curve
from tests.model.pretraining.termination import terminated_at
from tests.refusals import names

EACH = {"trunk_learning_rate": 1e-4, "origin_average": 0.3}


def measure_moves(made, output):
    """Return how far each weight of the trunk is from the origin."""
    trained = read_weights(output)
    return {n: float((trained[n] - t).abs().max()) for n, t in read_origin(made).items()}


def test_the_trunk_has_its_own_rate(made, tmp_path):
    train(made, tmp_path, trunk_learning_rate=1e-6, steps=5)
    assert 0 < max(measure_moves(made, tmp_path).values()) < 1e-4


def test_what_is_written_is_the_average(made, tmp_path):
    train(made, tmp_path / "own")
    train(made, tmp_path / "mean", origin_average=0.25)
    own, mean = read_weights(tmp_path / "own"), read_weights(tmp_path / "mean")
    for name, origin in read_origin(made).items():
        torch.testing.assert_close(mean[name], 0.25 * origin + 0.75 * own[name])
    before = read_weights(tmp_path / "mean")
    train(made, tmp_path / "mean", origin_average=0.25)  # done already: written again
    after = read_weights(tmp_path / "mean")
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


def test_terminated_it_continues_to_the_same_bytes(made, tmp_path):
    def train_here(name, **settings):
        train(made, tmp_path / name, steps=10, **EACH | settings)

    train_here("whole")
    with terminated_at(5), pytest.raises(SystemExit):
        train_here("cut")
    train_here("cut")
    file = "encoder/model.safetensors"
    assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    losses = [read_curve(tmp_path / name, "loss") for name in ("whole", "cut")]
    assert losses[0] == losses[1]
    with pytest.raises(UserError, check=names("origin_average", "0.3")):
        train_here("cut", origin_average=0)


def test_refused_where_training_begins_with_nothing(made, tmp_path):
    with pytest.raises(UserError, check=names("`origin_average`")):
        pretrain(made / "shards", tmp_path, origin_average=0.1)
    assert not list(tmp_path.iterdir())
