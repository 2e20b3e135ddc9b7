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


def test_version_1_scores_each_question_by_its_best_answer():
    """And counts no word in common as nothing, also where both are an article alone."""
    golds = {"a": ["lamp", "the red lamp"], "b": ["kettle"], "c": ["The"]}
    texts = {"a": "red lamp", "b": "lamp", "c": "the"}
    said = said_of(golds, texts, dict.fromkeys(golds, 0.0), 0.0, always_answered=True)
    assert said.scores["exact"].tolist() == [1, 0, 1]
    assert said.scores["f1"].tolist() == [1, 0, 0]
    assert spans.score_answers(["the"], [["The"]])["f1"].tolist() == [1.0], "but in version 2"


def test_what_is_above_the_threshold_is_not_answered_but_counts_for_the_best_one():
    """Right at 1 and 2 but silent above 0; every answer but the last gains."""
    golds = {"a": ["lamp"], "b": ["red kettle"], "c": []}
    texts = {"a": "lamp", "b": "kettle", "c": "lamp"}
    said = said_of(golds, texts, {"a": 1.0, "b": 2.0, "c": 3.0}, 0.0, always_answered=False)
    assert said.scores["exact"].tolist() == [0, 0, 1]
    assert spans.find_best_threshold(said) == pytest.approx((2.5, (1 + 2 / 3 + 1) / 3))
