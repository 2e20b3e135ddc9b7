"""What is kept of an evaluation: mistakes as a reader knows them, slices that every task has."""

import json

import numpy as np
import pytest

from model.evaluation.evaluate import _write_mistakes
from model.evaluation.predictions import Predictions
from model.evaluation.sections import _short
from model.finetuning.examples import Example
from model.finetuning.tasks import find

ENDINGS = ("He runs", "He sits", "He eats", "He sleeps")


@pytest.mark.parametrize(
    ("task", "example", "label", "prediction", "more", "shown"),
    [
        (
            "conll2003",
            Example("a", "EU rejects German", words=("EU", "rejects", "German"), tags=(3, 0, 7)),
            [3, 0, 7],
            [3, 0, 0],
            {"scores": {name: np.array([n]) for name, n in (("right", 1), ("predicted", 1), ("labelled", 2))}},
            ("EU/B-ORG rejects/O German/B-MISC", "EU/B-ORG rejects/O German/O"),
        ),
        (
            "swag",
            Example("a", "She opens the door.", label=2, choices=ENDINGS),
            2,
            1,
            {"n_classes": 4},
            ENDINGS[2:0:-1],
        ),
        ("polarity", Example("a", "Fine.", label=1), 1, 0, {"n_classes": 2}, ("positive", "negative")),
        (
            "squad2",
            Example("a", "Who?", "Ann did", answers=(("Ann", 0),)),
            [["Ann", 0]],
            "",
            {"scores": {"exact": np.zeros(1)}},
            ("Ann", "none"),
        ),
    ],
)
def test_a_mistake_of_every_shape_can_be_read(task, example, label, prediction, more, shown, tmp_path):
    said = Predictions(["a"], [label], [prediction], np.ones(1), **more)
    _write_mistakes(said, [example], find(task), tmp_path / "mistakes.jsonl")
    row = json.loads((tmp_path / "mistakes.jsonl").read_text())
    assert (_short(row["label"]), _short(row["prediction"])) == shown
