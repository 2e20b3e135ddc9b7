"""The promise of accuracy above a threshold is kept as often as it says."""

import numpy as np
import pytest

from amazon_electra.model.questions.trust import (
    GRID,
    choose_threshold,
    choose_thresholds_by_class,
    measure_costs,
)

TARGET = 0.95
DUMPS = 200
POPULATION = 1 / (1 + np.exp(-np.linspace(0, 6, 20_001)))
"""Confidences of all reviews; below, each is right with a probability that is a little less."""
_NEGATIVE = np.random.default_rng(0).beta(0.4, 1.2, 1_000_000)
SAVED = (
    np.where(_NEGATIVE < 0.5, 5 * _NEGATIVE, 1 - _NEGATIVE)
    - np.minimum(5 * _NEGATIVE, 1 - _NEGATIVE)
).mean()
"""By the labels of least cost, of reviews that are negative with such probabilities."""


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


def test_each_class_has_a_promise_of_its_own():
    draw = np.random.default_rng(5)
    labels = (np.arange(2000) % 2).astype(np.int64)
    sure = np.where(draw.random(2000) < np.where(labels == 1, 0.999, 0.6), labels, 1 - labels)
    probabilities = np.full((2000, 2), 0.1)
    probabilities[np.arange(2000), sure] = 0.9
    answers, confidence = probabilities.argmax(1), probabilities.max(1)
    zero, one = choose_thresholds_by_class(confidence, answers, labels, [TARGET, TARGET])
    assert zero.threshold is not None
    assert one.threshold is None
    assert choose_thresholds_by_class(confidence, answers, labels, [None, 0.6])[0] is None


def test_costs_are_least_by_calibrated_probabilities():
    """Reviews are negative as often as their probability says; a missed one costs 5. The best that
    anyone can pay is the mean of min(5 p, 1 - p).
    """
    draw = np.random.default_rng(6)
    negative = draw.beta(0.4, 1.2, 4000)
    probabilities = np.stack([negative, 1 - negative], 1)
    labels = (draw.random(4000) > negative).astype(np.int64)
    found = measure_costs(probabilities, labels, [5.0, 1.0], ["negative", "positive"])
    assert found.chosen == pytest.approx(np.minimum(5 * negative, 1 - negative).mean(), abs=0.03)
    assert found.likeliest == pytest.approx(found.chosen + found.saved)
    assert found.low > 0.1
    assert found.accuracy < found.accuracy_likeliest
    assert "5 where it is negative" in found.describe()
    shuffled = measure_costs(draw.permutation(probabilities), labels, [5.0, 1.0], ["a", "b"])
    assert shuffled.chosen > 2 * found.chosen


def test_interval_of_what_costs_save_contains_it():
    draw, held = np.random.default_rng(7), 0
    for _ in range(200):
        negative = draw.beta(0.4, 1.2, 300)
        labels = (draw.random(300) > negative).astype(np.int64)
        one = measure_costs(np.stack([negative, 1 - negative], 1), labels, [5.0, 1.0], ["a", "b"])
        held += one.low <= SAVED <= one.high
    assert held >= 180
