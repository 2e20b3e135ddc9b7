"""Hashes of all runs of n words of many texts at once, for finding texts that are nearly the same.

Words are runs of letters and digits, case folded; other signs do not count. Prefix sums of bytes times powers of an odd
base, modulo 2^64, give the hash of every word, and those the hash of every run.
"""

from functools import lru_cache

import numpy as np

AT_ONCE = 512  # texts, whose arrays then stay in the processor's cache
BASE, WORD_BASE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
NOT_WORD = bytes(b if (chr(b).isalnum() and b < 0x80) or b >= 0x80 else 0x20 for b in range(256))


def run_hashes(texts: list[str], words_in_run: int) -> tuple[np.ndarray, np.ndarray]:
    """Of texts of one line each: hashes of the runs (uint64), in their order, and the index of the text of each."""
    joined = "\n".join(texts).casefold().encode("utf-8", "replace")
    data = np.frombuffer(joined.translate(NOT_WORD), dtype=np.uint8)
    words, starts = word_hashes(data)
    line_ends = np.flatnonzero(np.frombuffer(joined, dtype=np.uint8) == 0x0A)
    owners = np.searchsorted(line_ends, starts).astype(np.uint32)
    count = len(words) - words_in_run + 1
    if count <= 0:
        return np.empty(0, np.uint64), np.empty(0, np.uint32)
    runs = np.zeros(count, dtype=np.uint64)
    for k in range(words_in_run):
        runs = runs * WORD_BASE + words[k : k + count]
    within = owners[:count] == owners[words_in_run - 1 :]
    runs ^= runs >> np.uint64(29)
    return (runs * BASE)[within], owners[:count][within]


def word_hashes(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hash (uint64) and first byte of every word; words are separated by spaces."""
    is_word = np.zeros(len(data) + 2, dtype=np.int8)
    is_word[1:-1] = data != 0x20
    steps = np.diff(is_word)
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    powers, inverses = powers_of_base(1 << max(len(data), 1).bit_length())
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum(data * powers[: len(data)], out=sums[1:])
    return (sums[ends] - sums[starts]) * inverses[starts], starts


@lru_cache(2)
def powers_of_base(count: int) -> tuple[np.ndarray, np.ndarray]:
    """BASE^i and BASE^-i modulo 2^64."""
    powers = np.full(count, BASE, dtype=np.uint64)
    inverses = np.full(count, pow(int(BASE), -1, 1 << 64), dtype=np.uint64)
    powers[0] = inverses[0] = 1
    return np.cumprod(powers, dtype=np.uint64), np.cumprod(inverses, dtype=np.uint64)
