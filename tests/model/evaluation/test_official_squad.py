"""The numbers of the official SQuAD scripts, on examples worked by hand."""

import numpy as np
import pytest

from model.evaluation import spans
from model.finetuning.examples import Example
from model.finetuning.features import Feature


def said_of(golds, texts, no_answer, threshold, always_answered):
    """Through the network's own path: a window whose best span is the text, "no answer" above it by
    so much.
    """
    features, logits, examples = [], [], []
    for k, q in enumerate(golds):
        scores = np.full((2, 3), -50.0)
        scores[:, 0] = no_answer[q] / 2
        scores[:, 1] = 0.0 if texts[q] else -50.0
        offsets = np.array(
            [(-1, -1), (0, len(texts[q])) if texts[q] else (-1, -1), (-1, -1)], dtype=np.int32
        )
        features.append(Feature(k, [[1, 2, 3]], [[0, 1, 1]], [0, 0], offsets))
        logits.append(scores)
        examples.append(
            Example(q, "what?", texts[q], answers=tuple((gold, 0) for gold in golds[q]))
        )
    return spans.predict_answers(logits, features, examples, threshold, always_answered)


def test_a_worked_example():
    """Right at -3; wrong at -1; unanswerable, answered at 1: best at -3, where two of three are
    right.
    """
    golds = {"a": ["lamp"], "b": ["kettle"], "c": []}
    texts = {"a": "the lamp", "b": "lamp", "c": "lamp"}
    said = said_of(golds, texts, {"a": -3.0, "b": -1.0, "c": 1.0}, 0.0, always_answered=False)
    assert spans.compute_official_scores(said, always_answered=False) == pytest.approx({
        "exact": 200 / 3, "f1": 200 / 3, "total": 3,
        "HasAns_exact": 50, "HasAns_f1": 50, "HasAns_total": 2,
        "NoAns_exact": 100, "NoAns_f1": 100, "NoAns_total": 1,
        "best_exact": 200 / 3, "best_exact_thresh": -3, "best_f1": 200 / 3, "best_f1_thresh": -3,
    })  # fmt: skip


def test_version_1_scores_each_question_by_its_best_answer():
    """And counts no word in common as nothing, also where both are an article alone."""
    golds = {"a": ["lamp", "the red lamp"], "b": ["kettle"], "c": ["The"]}
    texts = {"a": "red lamp", "b": "lamp", "c": "the"}
    said = said_of(golds, texts, dict.fromkeys(golds, 0.0), 0.0, always_answered=True)
    scores = spans.compute_official_scores(said, always_answered=True)
    assert scores == pytest.approx({"exact_match": 200 / 3, "f1": 100 / 3})
    assert spans.score_answers(["the"], [["The"]])["f1"].tolist() == [1.0], "but in version 2"


def test_what_is_above_the_threshold_is_not_answered_but_counts_for_the_best_one():
    """Right at 1 and 2 but silent above 0; every answer but the last gains."""
    golds = {"a": ["lamp"], "b": ["red kettle"], "c": []}
    texts = {"a": "lamp", "b": "kettle", "c": "lamp"}
    said = said_of(golds, texts, {"a": 1.0, "b": 2.0, "c": 3.0}, 0.0, always_answered=False)
    scores = spans.compute_official_scores(said, always_answered=False)
    assert (scores["exact"], scores["HasAns_exact"], scores["NoAns_exact"]) == (
        pytest.approx(100 / 3), 0, 100,
    )  # fmt: skip
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (pytest.approx(200 / 3), 1)
    assert scores["best_f1"] == pytest.approx(100 * (1 + 2 / 3 + 1) / 3)
    assert scores["best_f1_thresh"] == 2
