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
    """Logits [2, tokens] per window → one text per question; "" where no answer scores `threshold` above the best."""
    windows: dict[int, list[int]] = defaultdict(list)
    for i, feature in enumerate(features):
        windows[feature.example].append(i)
    texts, nulls, losses = [], [], []
    for e, example in enumerate(examples):
        text, null = _best(example, [features[i] for i in windows[e]], [logits[i] for i in windows[e]])
        texts.append(text if always_answered or null <= threshold else "")
        nulls.append(null)
        losses.append(_loss([features[i] for i in windows[e]], [logits[i] for i in windows[e]]))
    golds = [[answer for answer, _ in example.answers] for example in examples]
    said = Predictions([e.id for e in examples], golds, texts, np.array(losses), scores=score(texts, golds))
    said.scores["no_answer"] = np.array(nulls)
    return said


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
    """Exact match and F1 of each text: the best over the right answers; no right answer means "" is right."""
    exact, f1 = [], []
    for text, right in zip(texts, golds, strict=True):
        accepted = [answer for answer in right if normal(answer)] or [""]
        exact.append(float(max(normal(answer) == normal(text) for answer in accepted)))
        f1.append(max(overlap(answer, text) for answer in accepted))
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
    """The threshold with the highest score, and that score (official find_best_thresh).

    `said` must hold the texts as they are without any threshold. A question is left unanswered where its `no_answer`
    is above the threshold.
    """
    without = np.array([not any(normal(answer) for answer in right) for right in said.labels])
    spoken = np.array([bool(text) for text in said.predictions])
    gained = np.where(without, -spoken.astype(float), said.scores[name])
    order = np.argsort(said.scores["no_answer"], kind="stable")
    totals = without.sum() + np.cumsum(gained[order])
    best = int(np.argmax(totals))
    if totals[best] <= without.sum():
        return float(said.scores["no_answer"].min()) - 1.0, float(without.mean())
    return float(said.scores["no_answer"][order[best]]), float(totals[best] / len(said))
