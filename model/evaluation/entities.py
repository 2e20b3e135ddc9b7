"""Finds named entities in tags, and counts them as seqeval (and conlleval) do."""

from collections.abc import Sequence

import numpy as np

from model.evaluation.predictions import Predictions
from model.finetuning.examples import Example
from model.finetuning.features import Feature

Entity = tuple[str, int, int]
"""Kind, first word, last word."""


def predict_tags(
    logits: Sequence[np.ndarray],
    features: Sequence[Feature],
    examples: Sequence[Example],
    labels: Sequence[str],
) -> Predictions:
    """Predict a tag for each word from the logits [tokens, classes] of each sentence.

    Words without a piece (a zero-width space, a control character) and words beyond the maximum
    length get the first label, O.
    """
    predicted, losses = [], []
    for scores, feature, example in zip(logits, features, examples, strict=True):
        firsts = np.flatnonzero(feature.words >= 0)
        words = np.zeros(len(example.words), dtype=np.int64)
        words[feature.words[firsts]] = scores[firsts].argmax(1)
        predicted.append(words.tolist())
        losses.append(_compute_loss(scores[firsts], np.array(feature.target)[firsts]))
    golds = [list(example.tags) for example in examples]
    counts = np.array(
        [_count_entities(g, p, labels) for g, p in zip(golds, predicted, strict=True)],
        dtype=np.float64,
    )
    names = ("right", "predicted", "labelled")
    scores_of = {name: counts[:, i] for i, name in enumerate(names)}
    return Predictions(
        [e.id for e in examples],
        golds,
        predicted,
        np.array(losses),
        n_classes=len(labels),
        scores=scores_of,
    )


def _compute_loss(scores: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean cross-entropy of a sentence's tags, 0 where no word is left."""
    if not len(targets):
        return 0.0
    shifted = scores.astype(np.float64) - scores.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-log_probabilities[np.arange(len(targets)), targets].mean())


def _count_entities(
    gold: Sequence[int], predicted: Sequence[int], labels: Sequence[str]
) -> tuple[int, int, int]:
    """Return how many entities of a sentence are right, predicted, labelled."""
    gold_entities = find_entities([labels[i] for i in gold])
    predicted_entities = find_entities([labels[i] for i in predicted])
    right = len(gold_entities & predicted_entities)
    return right, len(predicted_entities), len(gold_entities)


def find_entities(tags: Sequence[str]) -> set[Entity]:
    """Return the entities of a sentence's tags.

    An entity begins at B-, or at I- after O or another kind, and ends before the first tag that
    does not continue it.
    """
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
