"""The variance that seeds add, and its degrees of freedom, are those of an analysis of variance; p
and intervals count them as few.
"""

import numpy as np
import pytest
from scipy.stats import norm, t

from amazon_electra.model.evaluation import significance


def test_nested_seeds_count_as_their_mean():
    """Two fine-tunings of one encoder tell no more of encoders than their mean does."""
    values = np.array([[1.0, 3.0, 5.0, 5.0, 0.0]])
    pairs = [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)]
    assert significance._arrange_seeds(values[0], pairs).tolist() == [[2.0], [5.0], [0.0]]
    crossed = significance._arrange_seeds(values[0][:4], [(1, 7), (0, 7), (1, 8), (0, 8)])
    assert crossed.tolist() == [[1.0, 5.0], [3.0, 5.0]]


def test_the_bootstrap_tells_what_is_known():
    """By hand: rows and columns -1, 0, 1, so P = F = 3 and I = 0, over 9 cells. The bootstrap moves
    all cells by 1 (the examples' part) and the rows by -1, 0, 1 (their own way: 3 / 9).
    """
    steps = np.array([-1.0, 0.0, 1.0])
    grid = steps[:, None] + steps
    number = np.arange(10_000)
    together, own = 1.0 - 2 * (number % 2), 1.0 - 2 * (number // 2 % 2)
    resampled = together + steps[:, None, None] * own + np.zeros((3, 3, 1))
    spread = significance._estimate_spread(grid, resampled, 100)
    assert spread.known == pytest.approx(1 - 3 / 9, rel=1e-3)
    assert spread.least == pytest.approx(3 / 9, rel=1e-3)
    assert (spread.between, spread.freedom) == (pytest.approx(6 / 9), pytest.approx(6**2 / 9))


@pytest.mark.parametrize("freedom", [1.0, 2.0, 7.5])
@pytest.mark.parametrize("distance", [0.5, 3.0, 20.0])
def test_p_is_students_or_normal(freedom, distance):
    seeds = significance.Spread(0.0, 2.0, 0.0, freedom)
    expected = 2 * t.sf(distance, freedom)
    found = significance._compute_p(distance * 2**0.5, seeds)
    assert found == pytest.approx(expected, rel=0.01, abs=1e-9)
    for examples in (
        significance.Spread(2.0, 0.0, 0.0, freedom),
        significance.Spread(0.0, 0.0, 2.0, freedom),
    ):
        found = significance._compute_p(distance * 2**0.5, examples)
        assert found == pytest.approx(2 * norm.sf(distance), rel=0.01)


def test_the_interval_ends_where_p_is_five_percent():
    for spread in (
        significance.Spread(1e-4, 1e-4, 1e-5, 2.0),
        significance.Spread(1e-9, 1.0, 0.0, 1.0),
        significance.Spread(1.0, 0.0, 0.1, 2.0),
    ):
        half = significance._compute_half_width(spread)
        assert significance._compute_p(half, spread) == pytest.approx(0.05)
    nothing = significance.Spread(0.0, 0.0, 0.0, 2.0)
    assert significance._compute_half_width(nothing) == 0.0
    assert [significance._compute_p(d, nothing) for d in (0.0, 0.1)] == [1.0, 0.0]


def test_like_variances_pool():
    like = [significance.Spread(0.0, between, 0.0, 2.0) for between in (1.0, 2.0, 4.0) * 4]
    pooled = significance._pool_spreads(like)
    assert len({round(s.between, 3) for s in pooled}) == 1
    assert {s.freedom for s in pooled} == {24.0}, "all that the twelve have"
    unlike = [significance.Spread(0.0, 100.0**i, 0.0, 2.0) for i in range(8)]
    alone = significance._pool_spreads(unlike)
    assert alone[7].between > 0.8 * unlike[7].between
    assert max(s.freedom for s in alone) < 2.5
    assert significance._pool_spreads(like[:1]) == like[:1]
