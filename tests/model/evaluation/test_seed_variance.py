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


def test_the_interval_ends_where_p_is_five_percent():
    """By Student's t where only seeds vary, by the normal distribution where only examples do."""
    for spread, half in (
        (significance.Spread(0.0, 2.0, 0.0, 3.0), t.isf(0.025, 3) * 2**0.5),
        (significance.Spread(2.0, 0.0, 0.0, 3.0), norm.isf(0.025) * 2**0.5),
    ):
        assert significance._compute_half_width(spread) == pytest.approx(half, rel=0.01)
        assert significance._compute_p(half, spread) == pytest.approx(0.05, rel=0.01)
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
