"""The interval of an arm's value covers its true value in simulated studies, and lies around what
was measured.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from amazon_electra.model.evaluation import significance
from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.evaluation.predictions import Predictions
from tests.model.evaluation.simulated_studies import GRID, STUDIES, predictions, pretrained_study

pytestmark = pytest.mark.usefixtures("fewer_samples")


def test_the_interval_of_accuracy_covers_the_truth():
    """The truth is over all examples, pre-trainings and fine-tunings, by a large simulation."""
    noise = np.sqrt(1 + 1 + 0.3**2 + 0.15**2 + 0.1**2)
    truth = np.mean(np.random.default_rng(0).normal(0.8, noise, 1_000_000) > 0)
    covered = 0
    for i in range(STUDIES):
        arm, _ = pretrained_study(i, 0.15, crossed=False)
        pooled = significance.pool_seeds(METRICS["accuracy"], arm, GRID, seed=i)
        covered += pooled["low"] <= truth <= pooled["high"]
    assert covered / STUDIES >= 0.94


def calibrated(number: int, n: int, off: float = 0.0) -> Predictions:
    """Right as often as the confidence says, less `off`."""
    generator = np.random.default_rng([5, number])
    confidence = np.clip(generator.beta(5, 1, n), 0.5, 1.0)
    right = generator.random(n) < confidence - off
    return replace(predictions(right), probabilities=np.stack([confidence, 1 - confidence], axis=1))


@pytest.mark.parametrize(("seeds", "n", "off"), [(1, 200, 0.0), (3, 600, 0.02), (1, 600, 0.1)])
def test_the_interval_of_ece_covers_the_truth(n, off, seeds):
    ece, covered, widths = METRICS["ece"], 0, []
    truth = ece.compute(calibrated(0, 400_000, off)) if off else 0.0
    for i in range(STUDIES // 2):
        own = [calibrated(1 + seeds * i + k, n, off) for k in range(seeds)]
        found = significance.pool_seeds(ece, own, seed=i)
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
        covered += found["low"] <= truth <= found["high"]
        widths.append(found["high"] - found["low"])
    assert covered >= 0.91 * (STUDIES // 2)
    assert np.mean(widths) < 3 / np.sqrt(n), "about four standard deviations of a share"


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_hundred_percent_is_not_certain(seeds):
    found, none = (
        significance.pool_seeds(METRICS["accuracy"], [predictions(right)] * seeds)
        for right in (np.ones(50, dtype=bool), np.zeros(50, dtype=bool))
    )
    assert (found["value"], found["high"], none["low"]) == (1.0, 1.0, 0.0)
    assert found["low"] == pytest.approx(binomtest(50, 50).proportion_ci().low)
    assert none["high"] == pytest.approx(binomtest(0, 50).proportion_ci().high)
