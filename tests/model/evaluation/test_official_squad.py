"""Every number of the official SQuAD scripts, against their algorithms written out plainly, one
question at a time.
"""

import collections
import random
import re
import string

import numpy as np
import pytest

from model.evaluation import spans
from model.finetuning.examples import Example
from model.finetuning.features import Feature

WORDS = (
    "the",
    "a",
    "beatles",
    "Beatles!",
    "lamp",
    "in",
    "1999",
    "...",
    "an",
    "kettle",
    "well-known",
)


def normalized(text):
    text = "".join(ch for ch in text.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_of(gold, text):
    return int(normalized(gold) == normalized(text))


def f1_of_v2(gold, text):
    gold_tokens, text_tokens = normalized(gold).split(), normalized(text).split()
    same = sum((collections.Counter(gold_tokens) & collections.Counter(text_tokens)).values())
    if len(gold_tokens) == 0 or len(text_tokens) == 0:
        return int(gold_tokens == text_tokens)
    if same == 0:
        return 0
    precision, recall = same / len(text_tokens), same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def f1_of_v1(gold, text):
    gold_tokens, text_tokens = normalized(gold).split(), normalized(text).split()
    same = sum((collections.Counter(gold_tokens) & collections.Counter(text_tokens)).values())
    if same == 0:
        return 0
    precision, recall = same / len(text_tokens), same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def script_v1(golds, texts):
    exact = sum(max(exact_of(gold, texts[q]) for gold in golds[q]) for q in golds)
    f1 = sum(max(f1_of_v1(gold, texts[q]) for gold in golds[q]) for q in golds)
    return {"exact_match": 100 * exact / len(golds), "f1": 100 * f1 / len(golds)}


def raw_scores(golds, texts, measure):
    scores = {}
    for q in golds:
        accepted = [gold for gold in golds[q] if normalized(gold)] or [""]
        scores[q] = max(measure(gold, texts[q]) for gold in accepted)
    return scores


def best_threshold(golds, texts, scores, no_answer):
    now = best = sum(1 for q in golds if not golds[q])
    threshold = 0.0
    for q in sorted(no_answer, key=lambda q: no_answer[q]):
        if golds[q]:
            now += scores[q]
        elif texts[q]:
            now -= 1
        if now > best:
            best, threshold = now, no_answer[q]
    return 100 * best / len(scores), threshold


def script_v2(golds, texts, no_answer, threshold):
    """The answers as they are given; the best thresholds of those there are without one."""
    given = {q: "" if no_answer[q] > threshold else texts[q] for q in golds}
    of_part = {
        "": list(golds),
        "HasAns_": [q for q in golds if golds[q]],
        "NoAns_": [q for q in golds if not golds[q]],
    }
    result = {}
    for name, measure in (("exact", exact_of), ("f1", f1_of_v2)):
        scores = raw_scores(golds, given, measure)
        for prefix, part in of_part.items():
            if part:
                result[prefix + name] = 100 * sum(scores[q] for q in part) / len(part)
                result[prefix + "total"] = len(part)
        best, at = best_threshold(golds, texts, raw_scores(golds, texts, measure), no_answer)
        result |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return result


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


def made(draw, most, answers_from):
    golds, texts, no_answer = {}, {}, {}
    for q in map(str, range(draw.randint(1, most))):
        golds[q] = [
            " ".join(draw.choices(WORDS, k=draw.randint(1, 3)))
            for _ in range(draw.randint(answers_from, 3))
        ]
        texts[q] = draw.choice([*golds[q], " ".join(draw.choices(WORDS, k=draw.randint(1, 3)))])
        no_answer[q] = float(draw.randint(-4, 4))
    return golds, texts, no_answer


@pytest.mark.parametrize("seed", range(60))
def test_every_number_of_version_2(seed):
    draw = random.Random(seed)
    golds, texts, no_answer = made(draw, most=25, answers_from=0)
    threshold = draw.choice([-2.0, 0.0, 0.5, 3.0])
    said = said_of(golds, texts, no_answer, threshold, always_answered=False)
    assert said.scores["no_answer"].tolist() == list(no_answer.values())
    assert spans.compute_official_scores(said, always_answered=False) == pytest.approx(
        script_v2(golds, texts, no_answer, threshold)
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_number_of_version_1(seed):
    golds, texts, no_answer = made(random.Random(seed), most=25, answers_from=1)
    said = said_of(golds, texts, no_answer, 0.0, always_answered=True)
    assert spans.compute_official_scores(said, always_answered=True) == pytest.approx(
        script_v1(golds, texts)
    )


def test_the_versions_differ_where_nothing_is_left_of_both():
    """ "the" against "The": equal, and without a word in common."""
    assert {
        name: scores.tolist() for name, scores in spans.score_answers(["the"], [["The"]]).items()
    } == {
        "exact": [1.0],
        "f1": [1.0],
    }
    assert {
        name: scores.tolist()
        for name, scores in spans.score_always_answered(["the"], [["The"]]).items()
    } == {
        "exact": [1.0],
        "f1": [0.0],
    }


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
