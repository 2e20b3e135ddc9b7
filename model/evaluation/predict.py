"""Predicts examples with any folder of model.finetune. Entities are counted as seqeval does."""

from collections.abc import Sequence

import numpy as np

from amazon_electra.model.evaluation import spans
from amazon_electra.model.evaluation.predictions import (
    Predictions,
    compute_log_softmax,
    compute_losses,
)
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.features import Feature


def make_predictions(
    logits: list[np.ndarray],
    features: Sequence[Feature],
    examples: Sequence[Example],
    task: Task,
    threshold: float = 0.0,
) -> Predictions:
    """Return the predictions for logits; the features are read for spans and tokens alone."""
    if task.shape == "span":
        return spans.predict_answers(logits, features, examples, threshold, task.always_answered)
    if task.shape == "tokens":
        return predict_tags(logits, features, examples, task.labels)
    if task.shape == "regression":
        return _predict_numbers(logits, examples)
    if task.shape == "multilabel":
        return predict_sets(np.stack(logits), np.array([e.tags for e in examples]), examples)
    return predict_classes(logits, examples)


def predict_classes(logits: list[np.ndarray], examples: Sequence[Example]) -> Predictions:
    """Predict classes from logits [classes] each; without a published label the loss is NaN."""
    scores = np.stack(logits)
    log_probabilities = compute_log_softmax(scores)
    labels = [-1 if e.label is None else int(e.label) for e in examples]
    loss = -log_probabilities[np.arange(len(labels)), labels]
    loss[np.array(labels) < 0] = np.nan
    return Predictions(
        ids=[e.id for e in examples],
        labels=labels,
        predictions=scores.argmax(1).tolist(),
        loss=loss,
        probabilities=np.exp(log_probabilities).astype(np.float32),
        n_classes=scores.shape[1],
    )


def predict_sets(
    logits: np.ndarray,
    labels: np.ndarray,
    examples: Sequence[Example],
    thresholds: np.ndarray | None = None,
) -> Predictions:
    """Predict the classes whose logits [n, classes] reach a threshold (choose_thresholds, or 0)."""
    losses, probabilities = compute_losses(logits, labels)
    least = np.zeros(logits.shape[1]) if thresholds is None else thresholds
    return Predictions(
        ids=[e.id for e in examples],
        labels=labels.astype(int).tolist(),
        predictions=(logits >= least).astype(int).tolist(),
        loss=losses,
        probabilities=probabilities.astype(np.float32),
        n_classes=logits.shape[1],
    )


def choose_thresholds(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the logit of each class, float64 [classes], of the best F1; 0 without an example."""
    chosen = np.zeros(logits.shape[1])
    for c in np.flatnonzero(labels.any(0)):
        order = np.argsort(-logits[:, c], kind="stable")
        scores, right = logits[order, c].astype(np.float64), np.cumsum(labels[order, c])
        answered = np.arange(1, len(order) + 1)
        f1 = 2 * right / (answered + right[-1])
        f1[:-1][scores[:-1] == scores[1:]] = -1  # equal scores have one answer
        best = int(f1.argmax())
        after = scores[best + 1] if best + 1 < len(scores) else scores[best] - 1
        chosen[c] = (scores[best] + after) / 2
    return chosen


def _predict_numbers(logits: list[np.ndarray], examples: Sequence[Example]) -> Predictions:
    """Predict numbers from logits [1] each; the loss is the squared error."""
    numbers = np.array([float(row[0]) for row in logits])
    labels = np.array([np.nan if e.label is None else float(e.label) for e in examples])
    return Predictions(
        ids=[e.id for e in examples],
        labels=labels.tolist(),
        predictions=numbers.tolist(),
        loss=(numbers - labels) ** 2,
    )


Entity = tuple[str, int, int]
"""Kind, first word, last word."""


def predict_tags(
    logits: Sequence[np.ndarray],
    features: Sequence[Feature],
    examples: Sequence[Example],
    labels: Sequence[str],
) -> Predictions:
    """Predict a tag for each word from logits [tokens, classes]. Words without a piece (a
    zero-width space) and beyond the maximum length get the first label, O.
    """
    predicted, losses = [], []
    for scores, feature, example in zip(logits, features, examples, strict=True):
        firsts = np.flatnonzero(feature.words >= 0)
        words = np.zeros(len(example.words), dtype=np.int64)
        words[feature.words[firsts]] = scores[firsts].argmax(1)
        predicted.append(words.tolist())
        own, targets = compute_log_softmax(scores[firsts]), np.array(feature.target)[firsts]
        each = -own[np.arange(len(targets)), targets]
        losses.append(float(each.mean()) if len(each) else 0.0)
    golds = [list(example.tags) for example in examples]
    found = [find_entities([labels[tag] for tag in tags]) for tags in predicted]
    right = [find_entities([labels[tag] for tag in tags]) for tags in golds]
    counts = {
        "right": [len(f & r) for f, r in zip(found, right, strict=True)],
        "predicted": [len(f) for f in found],
        "labelled": [len(r) for r in right],
    }
    return Predictions(
        [e.id for e in examples],
        golds,
        predicted,
        np.array(losses),
        n_classes=len(labels),
        scores={name: np.array(of, dtype=np.float64) for name, of in counts.items()},
    )


def find_entities(tags: Sequence[str]) -> set[Entity]:
    """Return the entities of tags: from B-, or I- after O or another kind, while it goes on."""
    spans: set[Entity] = set()
    kind, begin = "", 0
    for i, tag in enumerate([*tags, "O"]):
        continues = tag.startswith("I-") and tag[2:] == kind
        if kind and not continues:
            spans.add((kind, begin, i - 1))
            kind = ""
        if not kind and tag != "O":
            kind, begin = tag[2:], i
    return spans
