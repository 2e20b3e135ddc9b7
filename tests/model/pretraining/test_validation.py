"""How far the discriminator's states spread, and the warning while it is a constant."""

from pathlib import Path

import numpy as np
import pytest
import torch

from amazon_electra.model.pretraining.validation import StateSpread, describe_collapse
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.model.pretraining.runs import SHAPE, pretrain


def measure(states):
    spread = StateSpread()
    real = torch.ones(states.shape[:2])
    real[:, -1] = 0
    for part, kept in zip(states.split(2), real.split(2), strict=True):
        spread.add(part, kept)
    numbers = spread.compute_measures("x")
    return numbers["x_effective_rank"], numbers["x_mean_cosine"]


def test_the_measures_are_those_of_numpy_over_all_real_tokens():
    states = torch.randn(4, 10, 8) @ torch.diag(torch.arange(1.0, 9.0))
    tokens = states[:, :-1].reshape(-1, 8).numpy()
    singular = np.linalg.svd(tokens, compute_uv=False)
    shares = singular / singular.sum()
    units = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    cosines = (units @ units.T)[~np.eye(len(units), dtype=bool)]
    rank, cosine = measure(states)
    assert rank == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-4)
    assert cosine == pytest.approx(cosines.mean(), abs=1e-5)


def test_states_in_one_direction_have_rank_one():
    rank, cosine = measure(torch.ones(4, 10, 8) * torch.rand(4, 10, 1))
    assert rank == pytest.approx(1.0, abs=0.05)
    assert cosine == pytest.approx(1.0, abs=1e-4)


def test_the_spread_of_the_states_is_logged_and_in_the_card_and_a_constant_is_warned_of(
    shards, dev_shards, tmp_path, capsys
):
    words = ("--validation", dev_shards)
    result = pretrain(shards, tmp_path / "out", *words, steps=4, learning_rate=1e-6, **SHAPE)
    line = next(line for line in read_metrics(tmp_path / "out") if "validation_loss" in line)
    for measures in (line, result):
        assert 1 <= measures["validation_discriminator_effective_rank"] <= 32
        assert -1 <= measures["validation_discriminator_mean_cosine"] <= 1
    card = Path(result["encoder"], "README.md").read_text()
    assert "discriminator effective rank | discriminator mean cosine |" in card
    warning = "step 4: the discriminator is a constant so far (AUC 0."
    assert warning in capsys.readouterr().err
    [kept] = result["warnings"]
    assert kept.startswith(warning)


def test_a_discriminator_that_tells_tokens_apart_is_not_warned_of():
    assert describe_collapse(4, {"validation_discriminator_auc": 0.8}) is None
    assert describe_collapse(4, {"validation_mlm_loss": 3.0}) is None
    assert describe_collapse(4, {"validation_discriminator_auc": float("nan")}) is None
