"""Logits, probabilities and temperatures."""

from collections.abc import Sequence

import numpy as np

MIN_PROBABILITY = 1e-30  # a class that a pipeline never saw has a logarithm too
MIN_REST = 1e-7  # about the least difference from 1 that float32 has


def take_logarithms(probabilities: np.ndarray, is_multilabel: bool = False) -> np.ndarray:
    """Return logits, float64, whose softmax, or sigmoid, are the probabilities."""
    given = probabilities.astype(np.float64)
    logarithms = np.log(np.maximum(given, MIN_PROBABILITY))
    return logarithms - np.log(np.maximum(1 - given, MIN_REST)) if is_multilabel else logarithms


def apply_temperature(
    logits: np.ndarray, temperature: float, is_multilabel: bool = False
) -> np.ndarray:
    """Return softmax(logits / temperature), float64 [examples, classes]; the sigmoid of each where
    a text may have several of the classes.
    """
    scaled = logits.astype(np.float64) / temperature
    if is_multilabel:
        return np.asarray(np.exp(-np.logaddexp(0, -scaled)))
    powers = np.exp(scaled - scaled.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def sum_logits(logits: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Return the weighted sum, float64 [examples, classes]."""
    parts = zip(logits, weights, strict=True)
    return np.asarray(sum(weight * one.astype(np.float64) for one, weight in parts))
