"""Stretches of flat arrays and ascending numbers."""

import numpy as np
import pytest

from amazon_electra.beam_jobs.text.spans import drop_repeats, expand_spans


@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_ascending_numbers_stay_once(size):
    numbers = np.sort(np.random.default_rng(size).integers(0, 300, size))
    found = drop_repeats(numbers)
    assert found.tolist() == sorted(set(numbers.tolist()))
    assert found.dtype == numbers.dtype


def test_spans_become_their_positions():
    found = expand_spans(np.array([5, 0, 9]), np.array([2, 0, 3]))
    assert found.tolist() == [5, 6, 9, 10, 11]
