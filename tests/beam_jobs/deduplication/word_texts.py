"""Texts of numbered words, and when two of them overlap, written out for one pair at a time."""

from functools import lru_cache

import numpy as np

from beam_jobs.deduplication.evaluation_texts import MIN_WORDS


@lru_cache(5000)
def list_runs(text):
    """The runs of 8 words; a shorter text of 3 or more is one as a whole."""
    words = text.lower().split()
    if len(words) < 8:
        return [tuple(words)] if len(words) >= MIN_WORDS else []
    return [tuple(words[i : i + 8]) for i in range(len(words) - 7)]


def overlap(one, other):
    """Whether a text overlaps with a held-out one."""
    runs, others = list_runs(one), list_distinct_runs(other)
    shared = len(others.intersection(runs))
    return shared > 0 and shared >= min(len(runs), len(others)) / 2


@lru_cache(5000)
def list_distinct_runs(text):
    return frozenset(list_runs(text))


def draw_texts(count, seed, shortest=1, longest=40):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(shortest, longest, count)
    return [" ".join(f"w{n}" for n in rng.integers(0, 3000, size)) for size in sizes]


def draw_copies(texts, seed):
    """Each with some of its words exchanged, from none to a third, or cut short."""
    rng, copies = np.random.default_rng(seed), []
    for text in texts:
        words = text.split()
        for place in np.flatnonzero(rng.random(len(words)) < rng.choice([0, 0.03, 0.1, 0.3])):
            words[place] = f"x{rng.integers(1000)}"
        first = rng.integers(0, 3)
        copies.append(" ".join(words[first : len(words) - rng.integers(0, 3)]))
    return copies
