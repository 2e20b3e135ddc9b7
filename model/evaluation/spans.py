"""Turns start and end scores into answers, scored as by SQuAD's own scripts (Rajpurkar et al.)."""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product

import numpy as np

from amazon_electra.model.evaluation.predictions import Predictions, compute_log_softmax
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.features import Feature

CANDIDATES = 20
"""Best starts and ends that are combined (BERT's n_best_size)."""
MAX_ANSWER_TOKENS = 30
"""Tokens (BERT's max_answer_length)."""
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = set(string.punctuation)


def predict_answers(
    logits: Sequence[np.ndarray],
    features: Sequence[Feature],
    examples: Sequence[Example],
    threshold: float,
    always_answered: bool,
) -> Predictions:
    """Predict one text for each question from the logits [2, tokens] of its windows, "" where "no
    answer" outscores it by more than `threshold`. `scores` also hold what the texts score without a
    threshold, whether there is one, and by how much "no answer" outscores it.
    """
    windows: dict[int, list[int]] = defaultdict(list)
    for i, feature in enumerate(features):
        windows[feature.example].append(i)
    best_texts, nulls, losses = [], [], []
    for e, example in enumerate(examples):
        own, scored = [features[i] for i in windows[e]], [logits[i] for i in windows[e]]
        text, null = _find_best_answer(example, own, scored)
        best_texts.append(text)
        nulls.append(null)
        losses.append(_compute_loss(own, scored))
    golds = [[answer for answer, _ in example.answers] for example in examples]
    is_answered = always_answered | (np.array(nulls) <= threshold)
    texts = [text if here else "" for text, here in zip(best_texts, is_answered, strict=True)]
    answered = score_answers(best_texts, golds, always_answered)
    scores = score_answers(texts, golds, always_answered) | {
        f"answered_{name}": values for name, values in answered.items()
    }
    scores |= {
        "answered": np.array([float(bool(text)) for text in best_texts]),
        "no_answer": np.array(nulls),
    }
    return Predictions([e.id for e in examples], golds, texts, np.array(losses), scores=scores)


def _find_best_answer(
    example: Example, features: Sequence[Feature], logits: Sequence[np.ndarray]
) -> tuple[str, float]:
    """Return the best text over all windows, and by how much "no answer" outscores it."""
    best, text, null = -np.inf, "", np.inf
    for feature, (starts, ends) in zip(features, logits, strict=True):
        null = min(null, float(starts[0] + ends[0]))
        inside = feature.offsets[:, 0] >= 0
        most = min(CANDIDATES, int(inside.sum()))
        firsts, lasts = (np.argsort(-np.where(inside, s, -np.inf))[:most] for s in (starts, ends))
        for start, end in product(firsts.tolist(), lasts.tolist()):
            total = float(starts[start] + ends[end])
            if start <= end < start + MAX_ANSWER_TOKENS and total > best:
                begin, stop = feature.offsets[start][0], feature.offsets[end][1]
                best, text = total, str(example.pair)[begin:stop]
    return text, null - best


def _compute_loss(features: Sequence[Feature], logits: Sequence[np.ndarray]) -> float:
    """Return the lowest loss of the windows with an answer, or the mean of all without any."""
    losses, has_answer = [], []
    for feature, scores in zip(features, logits, strict=True):
        assert isinstance(feature.target, list)
        log_probabilities = compute_log_softmax(scores)
        losses.append(-log_probabilities[[0, 1], feature.target].mean())
        has_answer.append(feature.target != [0, 0])
    return float(np.min(np.array(losses)[has_answer]) if any(has_answer) else np.mean(losses))


def score_answers(
    texts: Sequence[str], golds: Sequence[Sequence[str]], always_answered: bool = False
) -> dict[str, np.ndarray]:
    """Return SQuAD 2.0's exact match and F1 of each text, the best over the right answers; without
    one "" is right. `always_answered` are SQuAD 1.1's: texts that share no word have F1 0.
    """
    exact, f1 = [], []
    for text, right in zip(texts, golds, strict=True):
        with_words = [answer for answer in right if normalize_answer(answer)]
        accepted = right if always_answered else with_words or [""]
        exact.append(float(max(normalize_answer(a) == normalize_answer(text) for a in accepted)))
        compared = with_words if always_answered else accepted
        f1.append(max((compute_overlap_f1(answer, text) for answer in compared), default=0.0))
    return {"exact": np.array(exact), "f1": np.array(f1)}


def normalize_answer(text: str) -> str:
    """Return the text in lower case, without punctuation, articles and doubled spaces."""
    text = "".join(c for c in text.lower() if c not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def compute_overlap_f1(gold: str, text: str) -> float:
    """Return the F1 of the words that two texts share."""
    gold_words, words = normalize_answer(gold).split(), normalize_answer(text).split()
    if not gold_words or not words:
        return float(gold_words == words)
    shared = sum((Counter(gold_words) & Counter(words)).values())
    return 2 * shared / (len(gold_words) + len(words))


def find_best_threshold(predictions: Predictions) -> tuple[float, float]:
    """Return the threshold with the highest F1, and that F1, as find_best_thresh of
    evaluate-v2.0.py; it lies in the middle of the gap above the last question answered, so that
    another rounding flips nothing.
    """
    gaps, scores = predictions.scores["no_answer"], predictions.scores
    without = np.array([not right for right in predictions.labels])
    gained = np.where(without, -scores["answered"], scores["answered_f1"])
    order = np.argsort(gaps, kind="stable")
    totals = without.sum() + np.cumsum(gained[order])
    best = int(np.argmax(totals))
    if totals[best] <= without.sum():
        return float(gaps.min()) - 1.0, float(without.mean())
    last = float(gaps[order[best]])
    above = gaps[gaps > last]
    threshold = (last + float(above.min())) / 2 if len(above) else last + 1.0
    return threshold, float(totals[best] / len(predictions))
