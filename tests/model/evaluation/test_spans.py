"""Answers: the official scores of SQuAD on worked examples, windows, thresholds; entities against
seqeval.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from amazon_electra.model.evaluation import spans
from amazon_electra.model.evaluation.predict import find_entities
from amazon_electra.model.evaluation.predict import predict_tags as entity_tags
from amazon_electra.model.evaluation.predictions import Predictions
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.features import Featurizer
from amazon_electra.model.finetuning.network import load_tokenizer
from amazon_electra.model.finetuning.tasks.conll import LABELS
from tests.model.corpora import write_tokenizer
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("text", "golds", "exact", "f1"),
    [
        ("red lamp", ["lamp", "the red lamp"], 1, 1),
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
    scores = spans.score_answers([text], [golds])
    assert scores["exact"].tolist() == [exact]
    assert scores["f1"].tolist() == pytest.approx([f1])
    scores = spans.score_answers(["the"], [["The"]], always_answered=True)
    assert (scores["exact"].tolist(), scores["f1"].tolist()) == ([1], [0]), "no word in SQuAD 1.1"


def make_said(labels, predictions, **scores):
    scores = {name: np.array(values, float) for name, values in scores.items()}
    n = len(labels)
    return Predictions(list("abcd")[:n], labels, predictions, np.zeros(n), scores=scores)


def test_threshold_is_where_most_is_gained():
    """Worked by hand: silent everywhere 2 of 4; then +1, +1, −1 in the order of the scores. Between
    −1, the last that is answered, and 2 every threshold is as good: their middle is farthest from
    both.
    """
    scores = {"answered_f1": [1, 0, 1, 0], "answered": [1] * 4, "no_answer": [-2, 3, -1, 2]}
    said = make_said([["x"], [], ["y"], []], ["x", "wrong", "y", "wrong"], **scores)
    assert spans.find_best_threshold(said) == (0.5, 1.0)
    all_right = {"answered_f1": [1, 1], "answered": [1, 1], "no_answer": [7, -2]}
    assert spans.find_best_threshold(make_said([["x"], ["y"]], ["x", "y"], **all_right)) == (8, 1)
    none = make_said([[]], ["wrong"], answered_f1=[0], answered=[1], no_answer=[-2])
    threshold, best = spans.find_best_threshold(none)
    assert (threshold < -2, best) == (True, 1)


def test_no_answer_is_weighed_against_the_best():
    """The lowest of the windows' "no answer" counts; the question's own tokens are no text."""
    example = Example("q", "lamp ?", "peter sat here")
    offsets = np.array([[-1, -1], [-1, -1], [0, 5], [6, 9], [10, 14]])
    features = [SimpleNamespace(example=0, offsets=offsets, target=[0, 0]) for _ in range(2)]
    logits = [
        np.array([[4.0, 99, 1, 2, 0], [5.0, 99, 0, 1, 3]]),
        np.array([[2.0, 99, 0, 0, 0], [1.0, 99, 0, 0, 0]]),
    ]
    said = spans.predict_answers(logits, features, [example], -2.0, always_answered=False)
    assert said.scores["no_answer"].tolist() == [(2 + 1) - (2 + 3)]
    assert said.predictions == ["sat here"]
    assert said.scores["answered"].tolist() == [1.0]
    backwards = [np.array([[0.0, 0, 0, 0, 9], [0.0, 0, 9, 0, 0]])]
    said = spans.predict_answers(backwards, features[:1], [example], 99.0, always_answered=False)
    assert said.predictions[0] in ("here", "peter"), "an end before the start is no answer"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return load_tokenizer(str(folder))


@pytest.mark.parametrize(("tokens", "is_allowed"), [(29, True), (30, True), (31, False)])
def test_the_longest_answer_has_thirty_tokens(tokenizer, tokens, is_allowed):
    passage = " ".join(["lamp"] * 40)
    example = Example("q", "who ?", passage, answers=(("lamp", 0),))
    (feature,) = Featurizer(tokenizer, "span", max_length=64, stride=16)([example])
    inside = np.flatnonzero(feature.offsets[:, 0] >= 0)
    assert len(inside) == 40
    logits = np.zeros((2, feature.length))
    logits[0, inside[3]] = logits[1, inside[3 + tokens - 1]] = 9.0
    answered = spans.predict_answers([logits], [feature], [example], 0.0, always_answered=True)
    assert (answered.predictions == [" ".join(["lamp"] * tokens)]) is is_allowed
    assert 0 < len(answered.predictions[0].split()) <= 30


def test_a_long_question_leaves_half_a_window(tokenizer):
    passage = "the lamp is great and " * 30 + "peter sat on the mat"
    answers = (("peter", passage.index("peter")),)
    example = Example("q", "battery " * 200, passage, answers=answers)
    windows = Featurizer(tokenizer, "span", 65, 64)([example])
    assert all(feature.length <= 65 for feature in windows)
    covered = {i for f in windows for a, b in f.offsets if a >= 0 for i in range(a, b)}
    assert {i for i, character in enumerate(passage) if character != " "} <= covered
    assert any(f.target != [0, 0] for f in windows)
    with refuses(field="stride", value=64):
        Featurizer(tokenizer, "span", max_length=64)


@pytest.mark.parametrize("nothing", ["\u200b", "\x07"])
def test_a_word_without_pieces_is_no_entity(tokenizer, nothing):
    words = ("peter", nothing, "sat", nothing, "london", "works")
    tags = (1, 2, 0, 0, 5, 0)
    example = Example("a", " ".join(words), words=words, tags=tags)
    (feature,) = Featurizer(tokenizer, "tokens", 64)([example])
    logits = np.zeros((feature.length, len(LABELS)))
    logits[np.flatnonzero(feature.words >= 0), [1, 0, 5, 0]] = 9.0
    said = entity_tags([logits], [feature], [example], LABELS)
    assert said.predictions == [[1, 0, 0, 0, 5, 0]]
    assert said.scores["right"].tolist() == [1.0]


def test_entities_are_seqevals():
    reference = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    generator = np.random.default_rng(0)
    choices = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    for _ in range(300):
        tags = list(generator.choice(choices, 12))
        assert find_entities(tags) == set(reference(tags)), tags
