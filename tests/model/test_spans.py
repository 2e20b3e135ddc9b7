"""Answers: the official scores of SQuAD on worked examples, windows, thresholds; entities against seqeval."""

import numpy as np
import pytest

from model.evaluation import spans
from model.evaluation.entities import entities
from model.evaluation.predictions import Predictions
from model.finetuning.batches import Encoder
from model.finetuning.encoders import load_tokenizer
from model.finetuning.examples import Example
from tests.model.corpora import write_tokenizer


@pytest.mark.parametrize(
    ("text", "golds", "exact", "f1"),
    [
        ("The Beatles", ["beatles"], 1, 1),
        ("an  answer!", ["Answer"], 1, 1),
        ("in the year 1999", ["1999"], 0, 0.5),
        ("1999", ["in 1998", "in 1999"], 0, 2 / 3),
        ("", [], 1, 1),
        ("something", [], 0, 0),
        ("", ["something"], 0, 0),
        ("the", ["the"], 1, 1),
        ("new york", ["york new"], 0, 1),
        ("no no", ["no"], 0, 2 / 3),
    ],
)
def test_official_scores(text, golds, exact, f1):
    scores = spans.score([text], [golds])
    assert scores["exact"].tolist() == [exact]
    assert scores["f1"].tolist() == pytest.approx([f1])


def test_threshold_is_where_most_is_gained():
    """Worked by hand: silent everywhere 2 of 4; then +1, −1, +1 in the order of the scores."""
    said = Predictions(
        ids=list("abcd"),
        labels=[["x"], [], ["y"], []],
        predictions=["x", "wrong", "y", "wrong"],
        loss=np.zeros(4),
        scores={"f1": np.array([1.0, 0.0, 1.0, 0.0]), "no_answer": np.array([-2.0, 3.0, -1.0, 2.0])},
    )
    assert spans.best_threshold(said) == (-1.0, 1.0)


def test_where_answering_never_helps_nothing_is_answered():
    said = Predictions(["a"], [[]], ["wrong"], np.zeros(1), scores={"f1": np.zeros(1), "no_answer": np.array([-2.0])})
    threshold, best = spans.best_threshold(said)
    assert threshold < -2.0
    assert best == 1.0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return load_tokenizer(str(folder))


def test_windows_overlap_and_point_at_the_answer(tokenizer):
    passage = "the lamp is great and " * 20 + "peter sat on the mat in london ." + " the kettle is awful" * 10
    example = Example("q", "who sat?", passage, answers=(("peter", passage.index("peter")),))
    features = Encoder(tokenizer, "span", max_length=48, stride=16)([example])
    assert len(features) > 3
    holding = [f for f in features if f.target != [0, 0]]
    assert holding
    for feature in holding:
        first, last = feature.target
        assert passage[feature.offsets[first][0] : feature.offsets[last][1]] == "peter"
    covered = {place for f in features for place in f.offsets if place != (-1, -1)}
    assert max(end for _, end in covered) == len(passage)


def test_the_best_answer_is_taken_over_all_windows(tokenizer):
    passage = "the lamp is great and " * 20 + "peter sat on the mat in london ."
    example = Example("q", "who sat?", passage, answers=(("peter", passage.index("peter")),))
    features = Encoder(tokenizer, "span", max_length=48, stride=16)([example])
    logits = []
    for feature in features:
        scores = np.zeros((2, len(feature.ids[0])))
        if feature.target != [0, 0]:
            scores[0, feature.target[0]] = scores[1, feature.target[1]] = 9.0
        logits.append(scores)
    said = spans.answers(logits, features, [example], threshold=0.0, always_answered=False)
    assert said.predictions == ["peter"]
    assert said.scores["exact"].tolist() == [1.0]
    assert said.scores["no_answer"].tolist() == [-18.0]
    silent = spans.answers(logits, features, [example], threshold=-20.0, always_answered=False)
    assert silent.predictions == [""]


def test_entities_are_seqevals():
    reference = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    generator = np.random.default_rng(0)
    choices = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    for _ in range(300):
        tags = list(generator.choice(choices, 12))
        assert entities(tags) == set(reference(tags)), tags
