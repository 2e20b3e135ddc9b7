"""The variance that seeds add, and its degrees of freedom, are those of an analysis of variance."""

import numpy as np
import pytest

from model.evaluation import significance


def test_nested_seeds_count_as_the_mean_of_each_pretraining():
    """Two fine-tunings of one encoder tell no more of encoders than their mean does."""
    values = np.array([[1.0, 3.0, 5.0, 5.0, 0.0]])
    pairs = [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)]
    assert significance._arrange_seeds(values[0], pairs).tolist() == [[2.0], [5.0], [0.0]]
    crossed = significance._arrange_seeds(values[0][:4], [(1, 7), (0, 7), (1, 8), (0, 8)])
    assert crossed.tolist() == [[1.0, 5.0], [3.0, 5.0]]


def test_the_variance_of_a_grid_is_that_of_its_mean_squares():
    """By hand: rows 1 and 3, columns 1 and 3, no interaction, and examples of no weight."""
    grid = np.array([[0.0, 2.0], [2.0, 4.0]])
    variance, freedom = significance._estimate_variance(grid, np.zeros((2, 2, 10)), 100)
    assert variance == pytest.approx((4.0 + 4.0) / 4)
    assert freedom == pytest.approx(2.0)
    alone, _ = significance._estimate_variance(grid[:, :1], np.zeros((2, 1, 10)), 100)
    assert alone == pytest.approx(2.0 / 2)


def test_mean_squares_are_those_of_an_analysis_of_variance():
    """Written out: sums of squares of rows, columns and what is left, over their freedom."""
    grid = np.random.default_rng(0).normal(size=(3, 4))
    mean = grid.mean()
    rows = sum(4 * (grid[i].mean() - mean) ** 2 for i in range(3)) / 2
    columns = sum(3 * (grid[:, j].mean() - mean) ** 2 for j in range(4)) / 3
    rest = sum(
        (grid[i, j] - grid[i].mean() - grid[:, j].mean() + mean) ** 2
        for i in range(3)
        for j in range(4)
    ) / (2 * 3)
    assert significance._compute_mean_squares(grid) == pytest.approx((rows, columns, rest))
    assert significance._compute_mean_squares(grid[:1]) == (
        0,
        pytest.approx(grid[0].var(ddof=1)),
        0,
    )
    assert significance._compute_mean_squares(grid[:, :1]) == (
        pytest.approx(grid[:, 0].var(ddof=1)),
        0,
        0,
    )


def test_the_freedom_of_a_grid_is_satterthwaites():
    """By hand: rows and columns -1, 0, 1, so P = F = 3 and I = 0, over 9 cells. The bootstrap moves
    all cells by 1 (the examples' part) and the rows by -1, 0, 1 (their own way: 3 / 9).
    """
    steps = np.array([-1.0, 0.0, 1.0])
    grid = steps[:, None] + steps
    number = np.arange(10_000)
    together, own = 1.0 - 2 * (number % 2), 1.0 - 2 * (number // 2 % 2)
    resampled = together + steps[:, None, None] * own + np.zeros((3, 3, 1))
    variance, freedom = significance._estimate_variance(grid, resampled, 100)
    assert variance == pytest.approx(1 + 6 / 9 - 3 / 9, rel=1e-3)
    known = 1 - 3 / 9 + 0.5 * 3 / 9
    rows, columns = (3 - 0.5 * 3) / 9, 3 / 9
    uncertainty = known**2 / 99 + rows**2 / 2 + columns**2 / 2
    assert freedom == pytest.approx((4 / 3) ** 2 / uncertainty, rel=1e-3)
    smaller = significance._estimate_variance(grid / 100, resampled / 100, 100)
    assert smaller == pytest.approx((variance / 100**2, freedom)), "whatever the unit"


def test_one_seed_has_the_freedom_of_its_examples():
    moved = np.random.default_rng(0).normal(size=(1, 1, 50))
    variance, freedom = significance._estimate_variance(np.zeros((1, 1)), moved, 30)
    assert (variance, freedom) == (pytest.approx(moved.var(ddof=1)), 29.0)
    opposed = np.concatenate([moved, -moved], axis=1)
    assert significance._estimate_variance(np.zeros((1, 2)), opposed, 30) == (0.0, 29.0)
