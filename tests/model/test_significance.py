"""Simulated studies: intervals cover what they should, and tests find nothing where there is nothing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from model.command import UserMistake
from model.evaluation import significance
from model.evaluation.metrics import METRICS
from model.evaluation.predictions import Predictions

EXAMPLES = 200
STUDIES = 200
NOMINAL = 0.06
"""5%, and what an approximation from three seeds may add."""


@pytest.fixture(autouse=True)
def fewer_samples(monkeypatch):
    """Simulations run hundreds of studies; 250 samples each are enough for a rate."""
    monkeypatch.setattr(significance, "SAMPLES", 250)


def predictions(right: np.ndarray) -> Predictions:
    labels = np.arange(len(right)) % 2
    said = np.where(right, labels, 1 - labels)
    return Predictions(
        [str(i) for i in range(len(right))], labels.tolist(), said.tolist(), np.zeros(len(right)), None, 2
    )


def arm(generator, difficulty, seeds, spread, effect=0.0) -> list[Predictions]:
    """Examples differ in difficulty, seeds by `spread` as a whole and on every example by chance (logits)."""
    return [
        predictions(difficulty + effect + generator.normal(0, spread) + generator.normal(0, 1.0, len(difficulty)) > 0)
        for _ in range(seeds)
    ]


def study(number: int, seeds: int, spread: float, effect: float = 0.0):
    """Both arms meet the same examples."""
    generator = np.random.default_rng([7, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    return arm(generator, difficulty, seeds, spread, effect), arm(generator, difficulty, seeds, spread)


def plausible(successes: int, rate: float) -> bool:
    """Whether so many of STUDIES are compatible with the rate; fails by chance once in a thousand."""
    return binomtest(successes, STUDIES, rate).pvalue > 0.001


@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), (3, 0.0), (3, 0.3), (5, 0.3)])
@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_where_there_is_no_difference_one_in_twenty_is_called_one(metric, seeds, spread):
    found = [significance.compare(METRICS[metric], *study(i, seeds, spread), seed=i) for i in range(STUDIES)]
    wrong = sum(c.p < 0.05 for c in found)
    covered = sum(c.low <= 0 <= c.high for c in found)
    assert plausible(wrong, NOMINAL) or wrong < NOMINAL * STUDIES
    assert plausible(covered, 1 - NOMINAL) or covered > (1 - NOMINAL) * STUDIES


@pytest.mark.parametrize(("seeds", "rate"), [(2, 0.13), (3, 0.08), (5, 0.06)])
def test_at_worst_few_seeds_call_so_many_a_difference(seeds, rate):
    """The variance of seeds is 25 times that of examples; with more or less of it there are fewer."""
    generator, wrong, studies = np.random.default_rng(0), 0, 4000
    for _ in range(studies):
        full = generator.normal(0, 1) + generator.normal(0, 5, seeds)
        resampled = np.tile(generator.normal(0, 1, 250), (seeds, 1))
        wrong += significance._p(full, resampled, EXAMPLES) < 0.05
    assert wrong / studies == pytest.approx(rate, abs=0.015)


def test_ignoring_that_seeds_vary_would_cry_wolf():
    """Why p is not the randomization test's where there are several seeds."""
    found = [significance.compare(METRICS["accuracy"], *study(i, 3, 0.3), seed=i) for i in range(STUDIES)]
    assert sum(c.p_randomization < 0.05 for c in found) > 0.15 * STUDIES


def test_the_interval_covers_the_true_accuracy_of_an_arm():
    """The truth is over all examples and all seeds, by a large simulation."""
    generator = np.random.default_rng(0)
    truth = np.mean(generator.normal(0.8, np.sqrt(1 + 1 + 0.2**2), 1_000_000) > 0)
    covered = 0
    for i in range(STUDIES):
        pooled = significance.pooled(METRICS["accuracy"], study(i, 4, 0.2)[0], seed=i)
        covered += pooled["low"] <= truth <= pooled["high"]
    assert plausible(covered, 0.95) or covered > 0.95 * STUDIES


def calibrated(number: int, n: int, off: float = 0.0) -> Predictions:
    """Right as often as the confidence says, less `off`."""
    generator = np.random.default_rng([5, number])
    confidence = np.clip(generator.beta(5, 1, n), 0.5, 1.0)
    right = generator.random(n) < confidence - off
    return replace(predictions(right), probabilities=np.stack([confidence, 1 - confidence], axis=1))


@pytest.mark.parametrize(("n", "off"), [(200, 0.0), (600, 0.0), (2000, 0.0), (200, 0.1), (600, 0.1), (600, 0.02)])
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_interval_of_a_calibration_error_covers_the_truth_and_the_value(n, off, seeds):
    ece, covered = METRICS["ece"], 0
    truth = ece.of(calibrated(0, 400_000, off)) if off else 0.0
    for i in range(STUDIES // 2):
        found = significance.pooled(ece, [calibrated(1 + seeds * i + k, n, off) for k in range(seeds)], seed=i)
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
        covered += found["low"] <= truth <= found["high"]
    assert covered >= 0.91 * (STUDIES // 2)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_hundred_percent_of_few_examples_is_not_certain(seeds):
    found = significance.pooled(METRICS["accuracy"], [predictions(np.ones(50, dtype=bool))] * seeds)
    assert (found["value"], found["high"]) == (1.0, 1.0)
    assert found["low"] == pytest.approx(binomtest(50, 50).proportion_ci().low)
    none = significance.pooled(METRICS["accuracy"], [predictions(np.zeros(50, dtype=bool))] * seeds)
    assert (none["low"], none["high"]) == (0.0, pytest.approx(binomtest(0, 50).proportion_ci().high))


def test_a_large_difference_is_found():
    found = [significance.compare(METRICS["accuracy"], *study(i, 3, 0.05, effect=0.9), seed=i) for i in range(20)]
    assert sum(c.p < 0.05 and c.low > 0 for c in found) >= 18
    assert found[0].words("A", "B", "higher") == "A is better than B"
    assert found[0].words("A", "B", "lower") == "B is better than A"


def test_no_difference_is_said_in_these_words():
    none = significance.compare(METRICS["accuracy"], *study(0, 3, 0.0))
    assert none.words("A", "B", "higher") == "no evidence of a difference between A and B"


def test_an_arm_does_not_differ_from_itself():
    same, _ = study(0, 3, 0.3)
    found = significance.compare(METRICS["macro_f1"], same, same)
    assert (found.difference, found.low, found.high, found.p, found.p_randomization) == (0, 0, 0, 1, 1)


def test_the_order_of_examples_does_not_matter():
    a, b = study(3, 2, 0.1)
    shuffled = [p.take(np.random.default_rng(1).permutation(EXAMPLES)) for p in b]
    assert significance.compare(METRICS["accuracy"], a, b) == significance.compare(METRICS["accuracy"], a, shuffled)


def test_one_example_tells_nothing():
    right, wrong = predictions(np.ones(1, dtype=bool)), predictions(np.zeros(1, dtype=bool))
    for found in (significance.pooled, lambda metric, seeds: significance.compare(metric, seeds, seeds[::-1])):
        with pytest.raises(UserMistake, match="the test set has one example"):
            found(METRICS["accuracy"], [right, wrong])


def test_other_examples_cannot_be_compared():
    a, b = study(0, 1, 0.0)
    with pytest.raises(UserMistake, match="different examples"):
        significance.compare(METRICS["accuracy"], a, [b[0].take(range(50))])


@pytest.mark.parametrize(("only_a", "only_b"), [(8, 0), (12, 4), (30, 22), (5, 5)])
def test_the_randomization_test_of_one_seeds_accuracies_is_mcnemars(only_a, only_b, monkeypatch):
    """Exact: binomial over the examples on which the two disagree."""
    monkeypatch.setattr(significance, "SAMPLES", 4000)
    a, b = np.ones(100, dtype=bool), np.ones(100, dtype=bool)
    b[:only_a], a[only_a : only_a + only_b] = False, False
    found = significance.compare(METRICS["accuracy"], [predictions(a)], [predictions(b)])
    exact = binomtest(only_a, only_a + only_b).pvalue
    assert found.p == found.p_randomization == pytest.approx(exact, abs=0.03)


def test_holm():
    assert significance.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert significance.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_holm_keeps_the_rate_over_a_family():
    """Of twenty true nulls, at least one is called a difference in 5% of the families."""
    generator = np.random.default_rng(0)
    families = sum(min(significance.holm(list(generator.random(20)))) < 0.05 for _ in range(STUDIES))
    assert plausible(families, 0.05) or families < 0.05 * STUDIES
