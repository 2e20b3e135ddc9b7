"""Which first models of a registry become champion, over simulated shops: by log-loss and macro-F1
against the majority's, so that imbalance neither hides a useful model nor makes a champion of one
that answers always the same.

A shop has 1,200 reviews to choose on and 306 of test. A model's logit is `skill` × the class plus
noise; one that has learnt nothing has the noise alone.
"""

import json

import numpy as np
import pytest

from amazon_electra.flows.runs.champion import decide as decide_champion
from amazon_electra.model import export
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.evaluation.predict import predict_classes
from amazon_electra.model.evaluation.predictions import write_predictions
from amazon_electra.model.finetuning.examples import Example

pytestmark = pytest.mark.usefixtures("fewer_samples")
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
    against = export.compare_with_simple_models(cell, [cell], test, METRICS)
    return decide_champion({"n_test": len(examples), "against": against}, None)


def test_shops_with_nothing_to_learn_have_no_champion(tmp_path):
    draw = np.random.default_rng(0)
    champions = [decide(tmp_path, draw, 0.95, 0.0).promote for _ in range(200)]
    assert sum(champions) <= 16


def test_always_positive_is_never_champion(tmp_path):
    """Though its probabilities know the classes, and its log-loss is by far the smaller one."""
    draw = np.random.default_rng(2)
    decisions = [decide(tmp_path, draw, 0.95, 2.0, shift=50.0) for _ in range(20)]
    assert not any(one.promote for one in decisions)
    assert all("log-loss smaller by 0." in one.reason for one in decisions)
