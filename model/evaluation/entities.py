"""Named entities out of tags, counted as seqeval (and conlleval) count them."""

from collections.abc import Sequence

import numpy as np

from model.evaluation.predictions import Predictions
from model.finetuning.batches import Feature
from model.finetuning.examples import Example
from model.finetuning.losses import IGNORED

Entity = tuple[str, int, int]
"""Kind, first word, last word."""


def tags(
    logits: Sequence[np.ndarray], features: Sequence[Feature], examples: Sequence[Example], labels: Sequence[str]
) -> Predictions:
    """Logits [tokens, classes] per sentence → a tag per word; words cut off by the maximal length get the first, O."""
    said, losses = [], []
    for scores, feature, example in zip(logits, features, examples, strict=True):
        assert isinstance(feature.target, list)
        targets = np.array(feature.target)
        firsts = np.flatnonzero(targets != IGNORED)
        words = scores[firsts].argmax(1).tolist()
        said.append(words + [0] * (len(example.words) - len(words)))
        losses.append(_loss(scores[firsts], targets[firsts]))
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
