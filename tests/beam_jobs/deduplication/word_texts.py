"""Texts of numbered words, and when two of them overlap, written out for one pair at a time."""

from functools import lru_cache

import numpy as np

from amazon_electra.beam_jobs.core.limits import DEFAULT_LIMITS
from amazon_electra.beam_jobs.deduplication import buckets, held_out
from amazon_electra.beam_jobs.deduplication.evaluation_texts import MIN_WORDS
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit
from tests.beam_jobs import dumps


def find_withheld(folder, evaluation, reviews):
    """Whether each review repeats a text of an evaluation file, or nearly so."""
    (folder / "test.txt").write_text(evaluation)
    paths = [str(folder / "test.txt")]
    withheld = held_out.write_withheld_runs(paths, str(folder), DEFAULT_LIMITS)
    others = buckets.join_files(withheld, str(folder / "heldout.starts"))
    unit, sizes = write_unit(folder, "u", reviews, np.zeros(len(reviews), bool))
    counts = buckets.join_unit_starts([unit], str(folder))
    [path] = write_matches(folder, folder, counts, 1, (), others)
    return held_out.UnitMatches(0, [path]).mark_near(0, sizes).tolist()


def write_matches(folder, matches, counts, of, copies=(), others=buckets.NO_FILES):
    """Leave what reviews share with held-out ones, in so many buckets; return the paths."""
    every = [(number, of) for number in reversed(range(of))]
    compared = held_out.Compared(counts, str(folder), str(matches), copies, others)
    return dumps.write_matches(compared, every)


BATCH = 300
"""Reviews that are hashed at once: more than BATCH_TEXTS, and several batches a unit."""


def write_unit(folder, name, texts, is_held):
    """Leave the runs of a unit as the first pass does; return its counts, and the runs of each."""
    hasher, sizes = held_out.NGramHasher(), []
    for start in range(0, len(texts), BATCH):
        part = slice(start, start + BATCH)
        sizes.append(hasher.add_texts(texts[part], is_held[part]))
    runs = hasher.trained.save(str(folder / f"{name}.runs"))
    held = hasher.held_out.save(str(folder / f"{name}.heldout"))
    write_starts(folder, name, runs=runs, heldout=held)
    counts = PreparedUnit(name, len(texts), held_out_runs=int(held[-1]))
    return counts, np.concatenate(sizes)


def write_starts(folder, name, **starts):
    """Leave where the buckets of a unit begin as the first pass does."""
    none = buckets.find_starts(np.empty(0, np.uint64))
    joined = np.concatenate([starts.get(kind, none) for kind in buckets.KINDS])
    (folder / f"{name}.starts").write_bytes(joined.tobytes())


@lru_cache(5000)
def list_ngrams(text):
    """The runs of 8 words; a shorter text of 3 or more is one as a whole."""
    words = text.lower().split()
    if len(words) < 8:
        return [tuple(words)] if len(words) >= MIN_WORDS else []
    return [tuple(words[i : i + 8]) for i in range(len(words) - 7)]


def overlap(one, other):
    """Whether a text overlaps with a held-out one."""
    runs, others = list_ngrams(one), list_distinct_runs(other)
    shared = len(others.intersection(runs))
    return shared > 0 and shared >= min(len(runs), len(others)) / 2


@lru_cache(5000)
def list_distinct_runs(text):
    return frozenset(list_ngrams(text))


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
