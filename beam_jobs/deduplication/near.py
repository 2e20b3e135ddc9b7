"""Near-duplicates: MinHash (datasketch) of runs of 3 words; who shares a band is a near copy.

Of the reviews that share a band the one with the smallest key, a hash, stays, whatever the order of
the dump. Of a chain of texts, each near the next, the first stays. The first pass over a unit
leaves BAND of each band of each review, bucket by bucket (buckets.py).
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.deduplication import buckets, exact
from amazon_electra.beam_jobs.deduplication.buckets import BAND, Bucket
from amazon_electra.beam_jobs.reading.work_units import UnitSize
from amazon_electra.beam_jobs.text.spans import find_runs, mark_firsts
from amazon_electra.beam_jobs.text.word_runs import BATCH_TEXTS, split_words

if TYPE_CHECKING:
    from datasketch import MinHash

RUN_WORDS = 3
PERMUTATIONS = 128
MAX_BAND_THRESHOLD = 0.98  # the highest threshold that bands are made for: above they find as much
MIN_RECALL = 0.85  # of the pairs that are as similar as the threshold, so many share a band


@lru_cache(1)
def make_empty_minhash() -> "MinHash":
    """Return what the signature of each text is computed in."""
    from datasketch import MinHash  # with scipy: half a second

    return MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=int, scheme="affine32")


@lru_cache(4)
def choose_bands(threshold: float) -> tuple[int, int]:
    """Return how many bands of how many values: the widest that find MIN_RECALL of the pairs."""
    agree = min(threshold, MAX_BAND_THRESHOLD)
    widths = range(1, PERMUTATIONS + 1)
    found = [w for w in widths if 1 - (1 - agree**w) ** (PERMUTATIONS // w) >= MIN_RECALL]
    width = max(found, default=1)
    return PERMUTATIONS // width, width


def hash_bands(texts: list[str], threshold: float) -> np.ndarray:
    """Return a hash of each band of each text, uint64 [texts, bands]; 0 for a text without runs."""
    bands, width = choose_bands(threshold)
    hashes = np.zeros((len(texts), bands), np.uint64)
    for first in range(0, len(texts), BATCH_TEXTS):
        runs, owners = split_words(texts[first : first + BATCH_TEXTS]).hash_runs(RUN_WORDS)
        values = (runs >> np.uint64(32)).tolist()
        places = find_runs(owners)
        signatures = np.empty((len(places) - 1, PERMUTATIONS), np.uint64)
        for place, (start, stop) in enumerate(pairwise(places.tolist())):
            signature = make_empty_minhash().copy()
            signature.update_batch(values[start:stop])
            signatures[place] = signature.hashvalues
        mixed = np.tile(np.arange(1, bands + 1, dtype=np.uint64), (len(signatures), 1))
        for column in range(width):
            mixed ^= signatures[:, column : bands * width : width]
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(31)
        hashes[first + owners[places[:-1]]] = mixed
    return hashes


def list_band_rows(hashes: np.ndarray, packed: np.ndarray) -> Iterator[np.ndarray]:
    """Yield BAND of each band of a unit's reviews, which `exact.pack_rows` has packed."""
    texts, keys = (np.empty(len(packed), np.uint64) for _ in range(2))
    texts[packed["row"]], keys[packed["row"]] = packed["high"], packed["key"]
    for band in hashes.T:
        here = np.flatnonzero(band)
        rows = np.empty(len(here), BAND)
        rows["run"], rows["text"], rows["key"] = band[here], texts[here], keys[here]
        rows["row"] = here
        yield rows


def list_buckets(counts: list[UnitSize], threshold: float) -> Iterator[Bucket]:
    """Yield the buckets of all bands."""
    reviews, (bands, _) = sum(unit.prepared for unit in counts), choose_bands(threshold)
    return buckets.list_buckets(bands * reviews, exact.BUCKET_ROWS, reviews)


def find_in_bucket(
    bucket: Bucket, prepared: str, units: list[UnitSize]
) -> Iterator[exact.UnitRows]:
    """Yield by unit ROW_NUMBER of reviews that share a band with another text of a smaller key."""
    parts = list(buckets.read_units(bucket, prepared, units, "bands"))
    rows = np.concatenate([np.empty(0, BAND), *parts])
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.lexsort((rows["row"], numbers, rows["key"], rows["run"]))
    rows, numbers = rows[order], numbers[order]
    is_first = mark_firsts(rows["run"])
    leaders = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    chosen = rows["text"] != rows["text"][leaders]
    copies = rows["row"][chosen].astype(exact.ROW_NUMBER)
    found = exact.group_by_unit(numbers[chosen], copies)
    return exact.collect_units(((unit, np.unique(own)) for unit, own in found), units)


def write_copies(copies: tuple[str, Iterable[bytes]], folder: str) -> str:
    """Write ROW_NUMBER of the near copies of a unit; return its name."""
    unit, packed = copies
    storage.write_bytes(storage.join_path(folder, f"{unit}.copies"), b"".join(packed))
    return unit
