"""`score` says where the model is surer than its threshold, and answers with several labels."""

import numpy as np
import pytest

from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.config import ModelConfig
from amazon_electra.beam_jobs.scoring.score_files import answer_texts


def answer(is_table=True, **details):
    """Return the columns of two texts that have 0.9 and 0.1, 0.4 and 0.6 of the classes."""
    found = np.array([[0.9, 0.1], [0.4, 0.6]])
    shape = {"problem_type": "multi_label_classification"} if "thresholds" in details else {}
    about, labels = {"kind": "onnx", **details}, {0: "bad", 1: "good"}
    config = ModelConfig(amazon_electra=about, id2label=labels, **shape)
    columns = answer_texts(Classifier(config, np.zeros), ["sure", "unsure"], found, is_table, False)
    return {name: column.to_pylist() for name, column in columns.items()}


@pytest.mark.parametrize(
    ("least", "decisions"), [(0.8, ["decided", "ask"]), (2.0, ["ask", "ask"]), (None, None)]
)
def test_answers_below_the_threshold_are_for_a_person(least, decisions):
    found = answer(decided_from=least)
    assert found["label"] == ["bad", "good"]
    assert found.get("decision") == decisions


def test_a_multi_label_model_answers_with_lists():
    found = answer(thresholds=[0.3, 0.5])
    assert found["label"] == [["bad"], ["bad", "good"]]
    assert found["p.good"] == [0.1, 0.6]
    copied = answer(is_table=False, thresholds=[0.3, 0.5])
    assert copied == {"predicted": found["label"], "probability": [[0.9], [0.4, 0.6]]}
