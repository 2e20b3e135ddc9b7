"""Near-duplicates: MinHash signatures (datasketch) of runs of 3 words, compared where a band of
them is equal.

Of the reviews that share a band the one with the smallest key in the earliest dump leads; the
others whose signatures agree with the leader's in at least the threshold go. Keys are hashes, so
neither the order within a dump nor the number of workers decides, and the leader of all that hang
together always stays. Texts of fewer than 3 words have no near-duplicates.
"""

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from beam_jobs.text.word_runs import BATCH_TEXTS, hash_word_runs

if TYPE_CHECKING:
    from datasketch import MinHash

RUN_WORDS = 3
PERMUTATIONS = 128
MAX_BAND_THRESHOLD = 0.98
"""The highest threshold that bands are made for, since it takes two: above they find as much."""
NO_RUNS = np.uint32(0xFFFFFFFF)
"""Stands first in the signature of a text without runs."""


@lru_cache(1)
def make_empty_minhash() -> "MinHash":
    from datasketch import MinHash  # with scipy: half a second

    return MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=int, scheme="affine32")


def compute_signatures(texts: list[str]) -> np.ndarray:
    """Return MinHash signatures, uint32 [texts, PERMUTATIONS]."""
    rows = np.full((len(texts), PERMUTATIONS), NO_RUNS, dtype=np.uint32)
    for first in range(0, len(texts), BATCH_TEXTS):
        runs, owners = hash_word_runs(texts[first : first + BATCH_TEXTS], RUN_WORDS)
        starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
        hashes = (runs >> np.uint64(32)).tolist()
        for start, stop in pairwise([*starts, len(hashes)]):
            signature = make_empty_minhash().copy()
            signature.update_batch(hashes[start:stop])
            rows[first + owners[start]] = signature.hashvalues
    return rows


def concatenate_signatures(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty((0, PERMUTATIONS), np.uint32)


@lru_cache(4)
def choose_bands(threshold: float) -> tuple[int, int]:
    """Return how many bands of how many values find most pairs above the threshold, few below."""
    from datasketch import MinHashLSH

    lsh = MinHashLSH(threshold=min(threshold, MAX_BAND_THRESHOLD), num_perm=PERMUTATIONS)
    return lsh.b, lsh.r


def hash_band(signature_rows: np.ndarray, band: int, threshold: float) -> np.ndarray:
    """Return a uint64 hash of one band of each signature; 0 for a text without runs."""
    _, width = choose_bands(threshold)
    part = np.ascontiguousarray(signature_rows[:, band * width : (band + 1) * width])
    mixed = np.full(len(part), band + 1, dtype=np.uint64)
    for column in part.T:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(31)
    return np.where(signature_rows[:, 0] == NO_RUNS, np.uint64(0), mixed)


class BandRows(NamedTuple):
    """Columns with one entry a text."""

    hashes: np.ndarray  # of one band
    dumps: np.ndarray  # in the order of arrival
    keys: np.ndarray
    units: np.ndarray  # positions in the list of the units' signatures
    rows: np.ndarray


def find_near_copies(
    texts: BandRows, of_unit: list[np.ndarray], threshold: float
) -> dict[int, np.ndarray]:
    """Return row numbers that do not stay, by position of the unit in `of_unit`, the signatures."""
    order = np.lexsort((texts.rows, texts.units, texts.keys, texts.dumps, texts.hashes))
    hashes, units, rows = texts.hashes[order], texts.units[order], texts.rows[order]
    begins = (
        np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
        if len(hashes)
        else np.empty(0, np.int64)
    )
    ends = np.r_[begins[1:], len(hashes)]
    gone: dict[int, list[int]] = {}
    for begin, end in zip(
        begins[ends - begins > 1].tolist(), ends[ends - begins > 1].tolist(), strict=True
    ):
        if hashes[begin] == 0:
            continue
        leader = of_unit[units[begin]][rows[begin]]
        for i in range(begin + 1, end):
            if np.mean(of_unit[units[i]][rows[i]] == leader) >= threshold:
                gone.setdefault(int(units[i]), []).append(int(rows[i]))
    return {unit: np.unique(np.array(numbers, dtype=np.uint32)) for unit, numbers in gone.items()}
