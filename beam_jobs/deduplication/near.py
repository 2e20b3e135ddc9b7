"""Near-duplicates: MinHash signatures (datasketch) of runs of 3 words, compared where a band of
them is equal.

Of the reviews that share a band the one with the smallest key in the earliest dump leads; the
others whose signatures agree with the leader's in at least the threshold go. Keys are hashes, so
neither the order within a dump nor the number of workers decides, and the leader of all that hang
together always stays. Texts of fewer than 3 words have no near-duplicates.

The search (`--near-duplicates`, off by default) reads the signatures of all units for each bucket
of a band, 512 bytes a review: local ones are mapped, those of a store a worker holds. So from and
to a store it is for a million reviews or so.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from beam_jobs.core import storage
from beam_jobs.deduplication.buckets import count_buckets
from beam_jobs.deduplication.exact import (
    BUCKET_ROWS,
    PACKED_ROW,
    ROW_NUMBER,
    Duplicates,
)
from beam_jobs.reading.work_units import PreparedUnit
from beam_jobs.text.word_runs import BATCH_TEXTS, split_words

if TYPE_CHECKING:
    from datasketch import MinHash

RUN_WORDS = 3
PERMUTATIONS = 128
MAX_BAND_THRESHOLD = 0.98
"""The highest threshold that bands are made for: above they find as much."""
MIN_RECALL = 0.95
"""Of the pairs whose signatures agree in the threshold, so many share a band: of a threshold of 0.8
18 bands of 7 values find 98%."""
NO_RUNS = np.uint32(0xFFFFFFFF)
"""Stands first in the signature of a text without runs."""
BandPart = tuple[int, int, int]
"""A band, a bucket of it, and how many buckets there are."""


@lru_cache(1)
def make_empty_minhash() -> "MinHash":
    """Return what the signature of each text is computed in."""
    from datasketch import MinHash  # with scipy: half a second

    return MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=int, scheme="affine32")


def compute_signatures(texts: list[str]) -> np.ndarray:
    """Return MinHash signatures, uint32 [texts, PERMUTATIONS]."""
    rows = np.full((len(texts), PERMUTATIONS), NO_RUNS, dtype=np.uint32)
    for first in range(0, len(texts), BATCH_TEXTS):
        runs, owners = split_words(texts[first : first + BATCH_TEXTS]).hash_runs(RUN_WORDS)
        starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
        hashes = (runs >> np.uint64(32)).tolist()
        for start, stop in pairwise([*starts, len(hashes)]):
            signature = make_empty_minhash().copy()
            signature.update_batch(hashes[start:stop])
            rows[first + owners[start]] = signature.hashvalues
    return rows


@lru_cache(4)
def choose_bands(threshold: float) -> tuple[int, int]:
    """Return how many bands of how many values: the widest of which MIN_RECALL of the pairs at the
    threshold share one. What shares one is compared, so that narrow bands find nothing wrong.
    """
    agree = min(threshold, MAX_BAND_THRESHOLD)
    widths = range(1, PERMUTATIONS + 1)
    found = [w for w in widths if 1 - (1 - agree**w) ** (PERMUTATIONS // w) >= MIN_RECALL]
    width = max(found, default=1)
    return PERMUTATIONS // width, width


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
    begins = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
    gone: dict[int, list[int]] = {}
    for begin, end in pairwise([*begins.tolist(), len(hashes)]):
        if end - begin < 2 or hashes[begin] == 0:
            continue
        leader = of_unit[units[begin]][rows[begin]]
        for i in range(begin + 1, end):
            if np.mean(of_unit[units[i]][rows[i]] == leader) >= threshold:
                gone.setdefault(int(units[i]), []).append(int(rows[i]))
    return {unit: np.unique(np.array(numbers, dtype=np.uint32)) for unit, numbers in gone.items()}


def list_bands(counts: list[PreparedUnit], threshold: float) -> Iterator[BandPart]:
    """Yield the buckets of all bands."""
    of = count_buckets(sum(c.prepared for c in counts), BUCKET_ROWS)
    bands, _ = choose_bands(threshold)
    return ((band, bucket, of) for band in range(bands) for bucket in range(of))


def find_in_band(
    part: BandPart, folder: str, threshold: float, counts: list[PreparedUnit]
) -> Iterator[Duplicates]:
    """Yield the near copies that a bucket of a band shows, from the `.bands` and `.hashes` of all
    units in a folder.
    """
    band, bucket, of = part
    units = sorted(counts, key=lambda c: c.unit)
    signatures = [load_signatures(folder, c.unit) for c in units]
    columns: list[tuple[np.ndarray, ...]] = []
    for i, unit in enumerate(units):
        hashes = hash_band(signatures[i], band, threshold)
        here = np.flatnonzero(
            (hashes >> np.uint64(32)) * np.uint64(of) >> np.uint64(32) == np.uint64(bucket)
        )
        path = storage.join_path(folder, f"{unit.unit}.hashes")
        packed = np.frombuffer(storage.read_bytes(path), PACKED_ROW)
        keys = np.empty(len(packed), np.uint64)
        keys[packed["row"]] = packed["key"]
        dump, number = (np.full(len(here), value, np.uint32) for value in (unit.dump, i))
        columns.append((hashes[here], dump, keys[here], number, here.astype(np.uint32)))
    texts = BandRows(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    for i, rows in find_near_copies(texts, signatures, threshold).items():
        yield units[i].unit, rows.astype(ROW_NUMBER).tobytes()


def load_signatures(folder: str, unit: str) -> np.ndarray:
    """Return the signatures of a unit, uint32 [texts, PERMUTATIONS]."""
    path = storage.join_path(folder, f"{unit}.bands")
    if not storage.is_remote(path):
        return np.load(path, mmap_mode="r")
    with storage.open_bytes(path) as file:
        return np.load(file)
