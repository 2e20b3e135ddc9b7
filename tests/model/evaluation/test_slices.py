"""Parts of the examples: by quartiles of numbers, by words as they are, and only what a part can
tell.
"""

from dataclasses import replace

import numpy as np
import pytest

from model.evaluation.evaluate import add_common_slices, measure_slices
from model.evaluation.predictions import Predictions
from model.finetuning.examples import Example
from model.finetuning.tasks import find_task


def classes(n=400):
    """Nine in ten are right; stars 1 and 2 are of class 0, 4 and 5 of class 1."""
    labels = np.arange(n) % 2
    guesses = np.where(np.random.default_rng(0).random(n) < 0.9, labels, 1 - labels)
    stars = [str((1 + 3 * label) + i // 2 % 2) for i, label in enumerate(labels)]
    return Predictions(
        [str(i) for i in range(n)], labels.tolist(), guesses.tolist(), np.zeros(n), None, 2,
        slices={"stars": stars, "words": list(range(n))},
    )  # fmt: skip


def test_numbers_are_cut_at_quartiles_and_small_parts_left_out():
    found = measure_slices(classes(), ["accuracy"])
    assert [row["part"] for row in found["words"]] == [
        "1: up to 99.75",
        "2: 99.75 to 199.5",
        "3: 199.5 to 299.25",
        "4: over 299.25",
    ]
    assert [row["n"] for row in found["stars"]] == [100] * 4
    assert measure_slices(classes(20), ["accuracy"]) == {}


def test_of_one_class_nothing_is_told_that_needs_several():
    found = measure_slices(classes(), ["accuracy", "macro_f1"])
    assert all(row.keys() == {"part", "n", "accuracy"} for row in found["stars"])
    assert all("macro_f1" in row for row in found["words"])


@pytest.mark.parametrize(
    ("task", "example", "words"),
    [
        ("sst-2", Example("a", "it is good"), 3),
        ("rte", Example("a", "it is good", "it is"), 5),
        ("swag", Example("a", "it is", choices=("good", "very bad")), 5),
        ("conll2003", Example("a", "EU rejects", words=("EU", "rejects"), tags=(3, 0)), 2),
    ],
)
def test_every_task_has_lengths(task, example, words):
    said = Predictions(["a"], [0], [0], np.zeros(1))
    assert add_common_slices(said, [example], find_task(task)).slices == {"words": [words]}


def test_sentences_of_tags_have_parts_too():
    scores = {name: np.ones(40) for name in ("right", "predicted", "labelled")}
    ids, tags = [str(i) for i in range(40)], [[0]] * 40
    parts = {"source": ["a", "b"] * 20}
    said = Predictions(ids, tags, tags, np.zeros(40), None, 9, scores, parts)
    found = measure_slices(said, ["entity_f1"])["source"]
    assert [row["entity_f1"]["value"] for row in found] == [1.0, 1.0]


def test_questions_are_parted_by_whether_there_is_an_answer():
    examples = [
        Example(str(i), "who", "a b c", answers=(("b", 2),) if i % 2 else ()) for i in range(60)
    ]
    said = Predictions(
        [e.id for e in examples], [list(e.answers) for e in examples], ["b"] * 60, np.zeros(60),
        scores={"exact": np.arange(60) % 2 * 1.0},
    )  # fmt: skip
    for task in ("squad2", "subjqa"):
        found = measure_slices(add_common_slices(said, examples, find_task(task)), ["exact_match"])[
            "answer"
        ]
        assert [(row["part"], row["n"], row["exact_match"]["value"]) for row in found] == [
            ("in the text", 30, 1.0),
            ("none", 30, 0.0),
        ]
    assert "answer" not in add_common_slices(replace(said), examples, find_task("squad1")).slices
