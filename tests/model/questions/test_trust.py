"""The promise of accuracy above a threshold is kept as often as it says."""

import numpy as np

from amazon_electra.model.questions.trust import GRID, choose_threshold

TARGET = 0.95
DUMPS = 200
POPULATION = 1 / (1 + np.exp(-np.linspace(0, 6, 20_001)))
"""Confidences of all reviews; below, each is right with a probability that is a little less."""


def how_often_right(confidence: np.ndarray) -> np.ndarray:
    return confidence - 0.15 * (1 - confidence)


def draw_dump(draw: np.random.Generator, n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    confidence = draw.choice(POPULATION, n)
    return confidence, draw.random(n) < how_often_right(confidence)


def measure(threshold: float) -> float:
    """Return the true accuracy above a threshold."""
    above = POPULATION[threshold <= POPULATION]
    return float(how_often_right(above).mean()) if len(above) else 1.0


def choose_by_measured_share(confidence: np.ndarray, is_right: np.ndarray) -> float:
    """Return the lowest threshold above which the measured share reaches the target: what a method
    without a bound does.
    """
    kept = [t for t in GRID if (on := confidence >= t).any() and is_right[on].mean() >= TARGET]
    return min(kept, default=1.0)


def test_promise_is_broken_as_seldom_as_it_says():
    draw, broken, naive, shares = np.random.default_rng(3), 0, 0, []
    for _ in range(DUMPS):
        dump = draw_dump(draw)
        found = choose_threshold(*dump, TARGET)
        if found.threshold is not None:
            broken += measure(found.threshold) < TARGET
            shares.append(found.answered)
            assert found.low <= found.answered <= found.high
        naive += measure(choose_by_measured_share(*dump)) < TARGET
    assert broken <= 16
    assert naive > 60  # the test sees a method without a bound
    assert len(shares) > 150
    assert np.mean(shares) > 0.5  # of the 0.73 that an oracle could answer


def test_nothing_is_promised_of_shuffled_scores_or_few_labels():
    draw = np.random.default_rng(4)
    confidence, is_right = draw_dump(draw)
    assert choose_threshold(draw.permutation(confidence), is_right, TARGET).threshold is None
    few = choose_threshold(confidence[:40], np.ones(40, bool), TARGET)
    assert few.threshold is None
    assert "40" in few.describe()
