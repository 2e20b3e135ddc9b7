"""Phrases of the classes, on states whose truth is known."""

import numpy as np
import pytest

from amazon_electra.model.arms.phrases import (
    add_scores,
    average_phrases,
    fold_scores,
    take_directions,
)
from amazon_electra.model.arms.states import fit_layer

WIDTH, NOISE = 16, 0.7
NO_PHRASES = np.empty((0, WIDTH), np.float32)


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return states of two layers [n, 2 * WIDTH], and classes: the last layer's first number leans
    to the class, all others say nothing.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    states = rng.normal(size=(n, 2 * WIDTH)).astype(np.float32)
    states[:, WIDTH] += NOISE * (2 * labels - 1)
    return states, labels


def say(*firsts: float, place: int = 0) -> np.ndarray:
    """Return the directions of classes by one phrase each, which lies along a number of the last
    layer.
    """
    phrases = np.zeros((len(firsts), 2 * WIDTH), np.float32)
    phrases[:, WIDTH + place] = firsts
    return average_phrases(take_directions(phrases, WIDTH), [1] * len(firsts))


def measure(said: np.ndarray, n: int = 40) -> tuple[float, float]:
    """Return the accuracy on 2,000 others, and the factor of the phrases."""
    layer, _, factor = fit_layer(*draw(n, 0), 2, np.arange(n), said)
    states, labels = draw(2_000, 1)
    return float((layer.compute_logits(states).argmax(1) == labels).mean()), factor


def test_phrases_help_where_labels_are_few():
    without, _ = measure(NO_PHRASES)
    with_them, factor = measure(say(-1, 1))
    assert factor > 0
    assert with_them > without + 0.05


@pytest.mark.parametrize("place", range(1, 9))
def test_phrases_that_say_nothing_are_left_out(place):
    assert measure(say(-1, 1, place=place)) == measure(NO_PHRASES)


def test_swapped_phrases_swap_the_scores():
    states, _ = draw(50, 0)
    scores, swapped = (add_scores(states, one)[:, -2:] for one in (say(-1, 1), say(1, -1)))
    assert np.array_equal(scores, swapped[:, ::-1])
    assert len({*np.sign(scores[:, 0])}) == 2


def test_folded_weights_score_as_before():
    (states, _), said = draw(50, 0), say(-1, 1)
    weights = np.random.default_rng(2).normal(size=(2, 2 * WIDTH + 2))
    every = np.hstack([states, take_directions(states, WIDTH)])
    assert np.allclose(add_scores(states, said) @ weights.T, every @ fold_scores(weights, said).T)
