"""Extractive answers: from start and end scores to text, and the official SQuAD scores of a text.

Scores equal those of the official evaluate-v1.1.py and evaluate-v2.0.py (Rajpurkar et al. 2016, 2018) on the same
predictions (tests/model/test_spans.py).
"""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from model.evaluation.predictions import Predictions
from model.finetuning.batches import Feature
from model.finetuning.examples import Example

CANDIDATES = 20
"""Best starts and ends that are combined (BERT's n_best_size)."""
LONGEST_ANSWER = 30
"""Tokens (BERT's max_answer_length)."""
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = set(string.punctuation)


def answers(
    logits: Sequence[np.ndarray],
    features: Sequence[Feature],
    examples: Sequence[Example],
    threshold: float,
    always_answered: bool,
) -> Predictions:
    """Logits [2, tokens] per window → one text per question; "" where no answer scores `threshold` above the best.

    `scores` also hold what the texts would score without any threshold (answered_exact, answered_f1), whether there is
    a text then (answered), and by how much "no answer" outscores it (no_answer).
    """
    windows: dict[int, list[int]] = defaultdict(list)
    for i, feature in enumerate(features):
        windows[feature.example].append(i)
    spoken, nulls, losses = [], [], []
    for e, example in enumerate(examples):
        text, null = _best(example, [features[i] for i in windows[e]], [logits[i] for i in windows[e]])
        spoken.append(text)
        nulls.append(null)
        losses.append(_loss([features[i] for i in windows[e]], [logits[i] for i in windows[e]]))
    golds = [[answer for answer, _ in example.answers] for example in examples]
    kept = always_answered | (np.array(nulls) <= threshold)
    texts = [text if here else "" for text, here in zip(spoken, kept, strict=True)]
    measure = score_answered if always_answered else score
    scores = measure(texts, golds) | {f"answered_{name}": values for name, values in measure(spoken, golds).items()}
    scores |= {"answered": np.array([float(bool(text)) for text in spoken]), "no_answer": np.array(nulls)}
    return Predictions([e.id for e in examples], golds, texts, np.array(losses), scores=scores)


def _best(example: Example, features: Sequence[Feature], logits: Sequence[np.ndarray]) -> tuple[str, float]:
    """The best text over all windows, and by how much "no answer" outscores it."""
    best, text, null = -np.inf, "", np.inf
    for feature, (starts, ends) in zip(features, logits, strict=True):
        null = min(null, float(starts[0] + ends[0]))
        inside = feature.offsets[:, 0] >= 0
        for start in _top(starts, inside):
            for end in _top(ends, inside):
                total = float(starts[start] + ends[end])
                if start <= end < start + LONGEST_ANSWER and total > best:
                    best, text = total, str(example.pair)[feature.offsets[start][0] : feature.offsets[end][1]]
    return text, null - best


def _top(scores: np.ndarray, inside: np.ndarray) -> list[int]:
    return np.argsort(-np.where(inside, scores, -np.inf))[: min(CANDIDATES, int(inside.sum()))].tolist()


def _loss(features: Sequence[Feature], logits: Sequence[np.ndarray]) -> float:
    """Of the window that holds the answer best; where none does, the mean over the windows."""
    losses, holds = [], []
    for feature, scores in zip(features, logits, strict=True):
        assert isinstance(feature.target, list)
        shifted = scores.astype(np.float64) - scores.max(1, keepdims=True)
        log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        losses.append(-(log_probabilities[0, feature.target[0]] + log_probabilities[1, feature.target[1]]) / 2)
        holds.append(feature.target != [0, 0])
    return float(min(loss for loss, here in zip(losses, holds, strict=True) if here) if any(holds) else np.mean(losses))


def score(texts: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """SQuAD 2.0's exact match and F1 of each text: the best over the right answers; with none of them "" is right."""
    exact, f1 = [], []
    for text, right in zip(texts, golds, strict=True):
        accepted = [answer for answer in right if normal(answer)] or [""]
        exact.append(float(max(normal(answer) == normal(text) for answer in accepted)))
        f1.append(max(overlap(answer, text) for answer in accepted))
    return {"exact": np.array(exact), "f1": np.array(f1)}


def score_answered(texts: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """SQuAD 1.1's, where every question has an answer: texts that share no word have F1 0, even if both have none."""
    exact, f1 = [], []
    for text, right in zip(texts, golds, strict=True):
        exact.append(float(max(normal(answer) == normal(text) for answer in right)))
        f1.append(max(overlap(answer, text) if normal(answer) else 0.0 for answer in right))
    return {"exact": np.array(exact), "f1": np.array(f1)}


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and doubled spaces."""
    text = "".join(c for c in text.lower() if c not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def overlap(gold: str, text: str) -> float:
    """F1 of the words two texts share."""
    of_gold, of_text = normal(gold).split(), normal(text).split()
    if not of_gold or not of_text:
        return float(of_gold == of_text)
    shared = sum((Counter(of_gold) & Counter(of_text)).values())
    return 2 * shared / (len(of_gold) + len(of_text))


def best_threshold(said: Predictions, name: str = "f1") -> tuple[float, float]:
    """The threshold with the highest score, and that score; below all where answering never helps.

    A question is left unanswered where its `no_answer` is above the threshold.
    """
    best, threshold = _best_threshold(said, name)
    return float(said.scores["no_answer"].min()) - 1.0 if threshold is None else threshold, best


def _best_threshold(said: Predictions, name: str) -> tuple[float, float | None]:
    """The highest score and its threshold (find_best_thresh of evaluate-v2.0.py), None where answering never helps."""
    without = np.array([not right for right in said.labels])
    gained = np.where(without, -said.scores["answered"], said.scores[f"answered_{name}"])
    order = np.argsort(said.scores["no_answer"], kind="stable")
    totals = without.sum() + np.cumsum(gained[order])
    best = int(np.argmax(totals))
    if totals[best] <= without.sum():
        return float(without.mean()), None
    return float(totals[best] / len(said)), float(said.scores["no_answer"][order[best]])


def official(said: Predictions, always_answered: bool) -> dict[str, float]:
    """What the official script prints of these answers, in percent: evaluate-v1.1.py or evaluate-v2.0.py.

    The best_* are what the latter finds for the texts there are without a threshold, `no_answer` being its
    --na-prob-file: a best_*_thresh is a difference of scores, 0 where answering never helps.
    """
    if always_answered:
        return {"exact_match": _percent(said.scores["exact"]), "f1": _percent(said.scores["f1"])}
    has_answer = np.array([bool(right) for right in said.labels])
    result: dict[str, float] = {}
    for prefix, chosen in (("", np.ones(len(said), dtype=bool)), ("HasAns_", has_answer), ("NoAns_", ~has_answer)):
        if chosen.any():
            result |= {f"{prefix}{name}": _percent(said.scores[name][chosen]) for name in ("exact", "f1")}
            result[f"{prefix}total"] = int(chosen.sum())
    for name in ("exact", "f1"):
        best, threshold = _best_threshold(said, name)
        result |= {f"best_{name}": 100 * best, f"best_{name}_thresh": threshold or 0.0}
    return result


def _percent(scores: np.ndarray) -> float:
    return 100 * float(scores.mean())
