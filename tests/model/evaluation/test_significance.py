"""Simulated studies: intervals of differences cover what they should, and tests find nothing where
there is nothing.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from amazon_electra.model.evaluation import significance
from amazon_electra.model.evaluation.metrics import METRICS
from tests.model.evaluation.simulated_studies import (
    GRID,
    STUDIES,
    predictions,
    pretrained_study,
    study,
)
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("fewer_samples")


@pytest.mark.parametrize(
    ("metric", "seeds", "spread"),
    [("accuracy", 1, 0.0), ("accuracy", 3, 0.3), ("macro_f1", 3, 0.0)],
)
def test_without_a_difference_few_are_called_one(metric, seeds, spread):
    found = [
        significance.compare_arms(METRICS[metric], *study(i, seeds, spread), seed=i)
        for i in range(STUDIES)
    ]
    wrong = sum(c.p < 0.05 for c in found) / STUDIES
    covered = sum(c.low <= 0 <= c.high for c in found) / STUDIES
    assert wrong <= 0.08
    assert covered >= 0.9, "250 samples cost a percentile interval one or two percent"


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "crossed"), [(0.1, True), (0.2, False)])
def test_three_pretrainings_of_three_finetunings_cover(spread, crossed):
    """One pre-training knows nothing of others: it has at least twice the false positives."""
    accuracy = METRICS["accuracy"]
    wrong = covered = of_one = 0
    for i in range(2 * STUDIES):
        a, b = pretrained_study(i, spread, crossed)
        found = significance.compare_arms(accuracy, a, b, GRID, seed=i)
        assert (found.pretraining_seeds, found.seeds) == (3, 9)
        wrong += found.p < 0.05
        covered += found.low <= 0 <= found.high
        of_one += significance.compare_arms(accuracy, a[:3], b[:3], seed=i).p < 0.05
    assert wrong / (2 * STUDIES) <= 0.06
    assert covered / (2 * STUDIES) >= 0.94
    assert of_one > 2 * wrong


def test_a_large_difference_is_found():
    found = [
        significance.compare_arms(METRICS["accuracy"], *study(i, 3, 0.05, effect=0.9), seed=i)
        for i in range(20)
    ]
    assert sum(c.p < 0.05 and c.low > 0 for c in found) >= 18
    assert found[0].is_a_better
    assert not found[0].swap_arms().is_a_better


def test_one_example_tells_nothing():
    right, wrong = predictions(np.ones(1, dtype=bool)), predictions(np.zeros(1, dtype=bool))
    for found in (
        significance.pool_seeds,
        lambda metric, seeds: significance.compare_arms(metric, seeds, seeds[::-1]),
    ):
        with refuses("n_test"):
            found(METRICS["accuracy"], [right, wrong])


def test_other_examples_cannot_be_compared():
    a, b = study(0, 1, 0.0)
    with refuses("n_test"):
        significance.compare_arms(METRICS["accuracy"], a, [b[0].take_rows(range(50))])


@pytest.mark.parametrize(("only_a", "only_b"), [(8, 0), (12, 4), (30, 22), (5, 5)])
def test_the_randomization_test_is_mcnemars(only_a, only_b, monkeypatch):
    """Exact: binomial over the examples on which the two disagree."""
    monkeypatch.setattr(significance, "SAMPLES", 4000)
    a, b = np.ones(100, dtype=bool), np.ones(100, dtype=bool)
    b[:only_a], a[only_a : only_a + only_b] = False, False
    found = significance.compare_arms(METRICS["accuracy"], [predictions(a)], [predictions(b)])
    exact = binomtest(only_a, only_a + only_b).pvalue
    assert found.p == pytest.approx(exact, abs=0.03)


def test_a_comparison_is_judged_by_its_corrected_p():
    ps = (0.01, 0.04, 0.03)
    alone = [significance.Comparison("accuracy", 0.1, 0.0, 0.2, p, 100, 3) for p in ps]
    assert [c.is_significant for c in alone] == [True, True, True]
    corrected = significance.correct_comparisons(alone)
    assert [c.p for c in corrected] == list(ps)
    assert [c.p_holm for c in corrected] == pytest.approx([0.03, 0.06, 0.06])
    assert [c.is_significant for c in corrected] == [True, False, False]
