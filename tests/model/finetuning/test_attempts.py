"""Attempts at several learning rates: their folders, their steps, and which is best."""

import math

import pytest
import torch

from model.evaluation.metrics import rank_dev_metrics
from model.finetuning import fit
from model.finetuning.checkpoint import (
    Attempt,
    read_finished_attempt,
    write_attempt,
)


def test_another_request_in_the_same_folder_starts_afresh(tmp_path):
    (tmp_path / "run.json").write_text('{"seed": 0}')
    first, other = (fit._locate_attempt(tmp_path, rate) for rate in (1e-4, 0.0005))
    assert first.parent == other.parent == tmp_path / "attempts"
    assert first.name.endswith("-0.0001")
    assert other.name.endswith("-0.0005")
    assert fit._locate_attempt(tmp_path, 1e-4) == first
    (tmp_path / "run.json").write_text('{"seed": 1}')
    assert fit._locate_attempt(tmp_path, 1e-4) != first


def test_an_attempt_is_finished_once_its_numbers_are_there(tmp_path):
    attempt = Attempt(1e-4, {"accuracy": 0.5}, 30, 20, 7.5, state={"w": torch.ones(2)})
    folder = tmp_path / "new" / "attempt"
    assert read_finished_attempt(folder) is None
    write_attempt(attempt, folder)
    back = read_finished_attempt(folder)
    assert back.summarize() == attempt.summarize()
    assert back.state["w"].tolist() == [1.0, 1.0]
    (folder / "attempt.json").unlink()
    assert read_finished_attempt(folder) is None


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"accuracy": 0.8, "loss": 9.0}, {"accuracy": 0.7, "loss": 0.1}),
        ({"accuracy": 0.8, "loss": 0.3}, {"accuracy": 0.8, "loss": 0.4}),
        ({"f1": 0.1}, {"f1": math.nan}),
        ({"f1": 0.1, "loss": 5.0}, {"f1": 0.1, "loss": math.nan}),
        ({"f1": 0.0, "loss": 5.0}, {}),
    ],
)
def test_the_first_metric_decides_then_the_loss_and_no_number_is_worst(better, worse):
    assert rank_dev_metrics(better) > rank_dev_metrics(worse)
    assert Attempt(1.0, better).rank_key() == rank_dev_metrics(better)
