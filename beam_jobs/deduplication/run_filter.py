"""A Bloom filter of hashes of runs of words, which spares most searches for them: each has three
bits in the word of 64 bits that its first bits number.
"""

import numpy as np

MIN_WORDS = 1 << 10
RUNS_PER_WORD = 4
"""Runs for each word, at most, where there are more than MIN_WORDS."""


def count_words(runs: int) -> int:
    """Return how many words a filter of so many runs has, a power of two."""
    return max(MIN_WORDS, 1 << ((runs - 1) // RUNS_PER_WORD).bit_length())


def compute_shift(parts: int) -> np.uint64:
    """Return how far a hash is shifted to number one of so many parts, a power of two."""
    return np.uint64(65 - parts.bit_length())


def mark_runs(runs: np.ndarray) -> np.ndarray:
    """Return the bits of each run in its word of the filter, uint64 [runs]."""
    one, low = np.uint64(1), np.uint64(63)
    marks = one << (runs & low)
    marks |= one << (runs >> np.uint64(6) & low)
    marks |= one << (runs >> np.uint64(12) & low)
    return marks


def build_filter(runs: np.ndarray, places: np.ndarray, words: int) -> np.ndarray:
    """Return so many words with the bits of runs, whose places among them ascend."""
    filled, firsts = np.unique(places, return_index=True)
    found = np.zeros(words, "<u8")
    if len(runs):
        found[filled] = np.bitwise_or.reduceat(mark_runs(runs), firsts)
    return found


def select_runs(found: np.ndarray, runs: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the indices of the runs that the filter `found` may have been built of."""
    marks = mark_runs(runs)
    return np.flatnonzero(found[places] & marks == marks)
