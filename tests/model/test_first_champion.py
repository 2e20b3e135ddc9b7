"""Which first models of a registry become champion, over simulated shops: by log-loss and macro-F1
against the majority's, so that imbalance neither hides a useful model nor makes a champion of one
that answers always the same.

A shop has 1,200 reviews to choose on and 306 of test. A model's logit is `skill` × the class plus
noise; one that has learnt nothing has the noise alone.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from amazon_electra.flows.runs.champion import decide_first
from amazon_electra.model import export
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.evaluation import choice
from amazon_electra.model.evaluation.metrics import list_figures
from amazon_electra.model.evaluation.predict import predict_classes
from amazon_electra.model.evaluation.predictions import write_predictions
from amazon_electra.model.finetuning.examples import Example

LABELS, METRICS = ("negative", "positive"), ("accuracy", "macro_f1", "ece", "loss")


def decide(folder, draw, majority, skill, shift=0.0):
    """Return the decision on a shop's model; `shift` moves its logits towards the positives."""
    labels = (draw.random(1_506) < majority).astype(int)
    base = np.log(majority / (1 - majority))
    margin = skill * (2 * labels - 1) + base * (0.5 if skill else 1) + draw.normal(size=1_506)
    logits = np.stack([-margin - shift, margin + shift], 1).astype(np.float32) / 2
    ids, own = [str(i) for i in range(1_506)], slice(1_200)
    OutOfFold(ids[own], labels[own], logits[own], np.zeros(1_200, np.int64)).save(folder)
    (folder / "result.json").write_text(json.dumps({"seed": 0}))
    (folder / "task.json").write_text(json.dumps({"kind": "tfidf"}))
    examples = [Example(ids[i], "", label=int(labels[i])) for i in range(1_200, 1_506)]
    test = predict_classes(list(logits[1_200:]), examples)
    write_predictions(test, folder / "predictions.parquet")
    cell = export.ExportCell("TF-IDF", folder, folder)
    return decide_first(
        {
            "classes": list_figures(test, LABELS),
            "against": export.compare_with_simple_models(cell, [cell], test, METRICS),
        }
    )


def test_shops_with_nothing_to_learn_have_no_champion(tmp_path, monkeypatch):
    monkeypatch.setattr("amazon_electra.model.evaluation.significance.SAMPLES", 400)
    draw = np.random.default_rng(0)
    champions = [decide(tmp_path, draw, 0.95, 0.0).promote for _ in range(200)]
    assert sum(champions) <= 16


@pytest.mark.parametrize("majority", [0.95, 0.98])
def test_rare_negatives_can_have_a_champion(tmp_path, monkeypatch, majority):
    monkeypatch.setattr("amazon_electra.model.evaluation.significance.SAMPLES", 400)
    draw = np.random.default_rng(1)
    champions = [decide(tmp_path, draw, majority, 2.0).promote for _ in range(40)]
    assert sum(champions) >= 24


def test_always_positive_is_never_champion(tmp_path, monkeypatch):
    """Though its probabilities know the classes, and its log-loss is by far the smaller one."""
    monkeypatch.setattr("amazon_electra.model.evaluation.significance.SAMPLES", 400)
    draw = np.random.default_rng(2)
    decisions = [decide(tmp_path, draw, 0.95, 2.0, shift=50.0) for _ in range(20)]
    assert not any(one.promote for one in decisions)
    assert all("log-loss smaller by 0." in one.reason for one in decisions)


def test_class_weights_do_not_decide_between_arms():
    """Weights move all logits by one number: calibrated, both arms have the same log-loss."""
    draw = np.random.default_rng(3)
    labels = (draw.random(3_000) < 0.95).astype(int)
    margin = 2 * (2 * labels - 1) + draw.normal(size=3_000)
    losses = []
    for shift in (0.0, 1.5):
        logits = np.stack([-margin - shift, margin + shift], 1).astype(np.float32) / 2
        held_out = OutOfFold([str(i) for i in range(3_000)], labels, logits, labels * 0)
        predictions = choice.make_held_out_predictions(held_out)
        calibrated = choice.apply_calibration(predictions, choice.fit_calibration(predictions))
        losses.append(calibrated.loss.mean())
        assert losses[-1] < predictions.loss.mean()
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)


def test_arms_are_compared_on_the_models_seed(tmp_path):
    """The last seed of another arm is not that of the best one."""
    cells = []
    for arm, seed, skill in (("finetuned", 1, 2.0), ("TF-IDF", 1, 1.5), ("TF-IDF", 2, -1.5)):
        folder = tmp_path / f"{arm}-{seed}"
        folder.mkdir()
        decide(folder, np.random.default_rng(5), 0.7, skill)
        (folder / "result.json").write_text(json.dumps({"seed": seed}))
        cells.append(export.ExportCell(arm, folder, folder))
    test = export.read_predictions(cells[0].evaluation / "predictions.parquet")
    found = export.compare_with_simple_models(cells[0], cells, test, METRICS)
    swapped = [replace(cells[0]), cells[2]]
    other = export.compare_with_simple_models(cells[0], swapped, test, METRICS)
    assert abs(found["TF-IDF"]["difference"]) < 0.1 < other["TF-IDF"]["difference"]
