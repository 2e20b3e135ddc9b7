"""Named entities out of tags, counted as seqeval (and conlleval) count them."""

from collections.abc import Sequence

import numpy as np

from model.evaluation.predictions import Predictions
from model.finetuning.batches import Feature
from model.finetuning.examples import Example

Entity = tuple[str, int, int]
"""Kind, first word, last word."""


def tags(
    logits: Sequence[np.ndarray], features: Sequence[Feature], examples: Sequence[Example], labels: Sequence[str]
) -> Predictions:
    """Logits [tokens, classes] per sentence → a tag per word.

    Words without a piece (a zero-width space, a control character) and those cut off by the maximal length get the
    first, O.
    """
    said, losses = [], []
    for scores, feature, example in zip(logits, features, examples, strict=True):
        firsts = np.flatnonzero(feature.words >= 0)
        words = np.zeros(len(example.words), dtype=np.int64)
        words[feature.words[firsts]] = scores[firsts].argmax(1)
        said.append(words.tolist())
        losses.append(_loss(scores[firsts], np.array(feature.target)[firsts]))
    golds = [list(example.tags) for example in examples]
    counts = np.array([_counts(g, s, labels) for g, s in zip(golds, said, strict=True)], dtype=np.float64)
    names = ("right", "predicted", "labelled")
    scores_of = {name: counts[:, i] for i, name in enumerate(names)}
    return Predictions([e.id for e in examples], golds, said, np.array(losses), n_classes=len(labels), scores=scores_of)


def _loss(scores: np.ndarray, targets: np.ndarray) -> float:
    if not len(targets):
        return 0.0
    shifted = scores.astype(np.float64) - scores.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-log_probabilities[np.arange(len(targets)), targets].mean())


def _counts(gold: Sequence[int], said: Sequence[int], labels: Sequence[str]) -> tuple[int, int, int]:
    of_gold = entities([labels[i] for i in gold])
    of_said = entities([labels[i] for i in said])
    return len(of_gold & of_said), len(of_said), len(of_gold)


def entities(tags: Sequence[str]) -> set[Entity]:
    """An entity begins at B-, or at I- after O or another kind, and ends where the next does not go on."""
    found: set[Entity] = set()
    kind, begin = "", 0
    for i, tag in enumerate([*tags, "O"]):
        goes_on = tag.startswith("I-") and tag[2:] == kind
        if kind and not goes_on:
            found.add((kind, begin, i - 1))
            kind = ""
        if not kind and tag != "O":
            kind, begin = tag[2:], i
    return found
