"""Which copy of a repeated text stays, decided on packed numbers alone.

Of the rows with the same text hash the one with the smallest key stays: the review id, then a hash
of what else is kept; of copies that are equal in every field the first in the dump. So neither the
order of records nor the number of workers, which share buckets of hashes (buckets.py), decides.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import xxhash

from amazon_electra.beam_jobs.deduplication import buckets
from amazon_electra.beam_jobs.deduplication.buckets import PACKED_ROW, Bucket
from amazon_electra.beam_jobs.reading.work_units import UnitSize
from amazon_electra.beam_jobs.text.spans import find_runs, mark_firsts

ROW_NUMBER = np.dtype("<u4")
BUCKET_ROWS = 1 << 20  # rows of a bucket: 28 MiB, some 100 MiB while it is sorted
MAX_CODES = 3
CONTRADICTION = np.dtype([("row", "<u4"), ("column", "<u4"), ("codes", "<u4", (MAX_CODES,))])
"""A review that stays, a label's number, hashes of the first classes that its copies have."""
UnitRows = tuple[str, bytes]  # the name of a unit and rows of a kind, packed


def hash_text(text: str) -> bytes:
    """Return 16 bytes that are equal for clean texts equal but for case."""
    return xxhash.xxh3_128_digest(text.casefold().encode())


def compute_keys(review_ids: bytes, rest: Iterable[str]) -> np.ndarray:
    """Return uint64 keys: 48 bits of the review id (16 bytes each), 16 of a hash of the rest."""
    ids = np.frombuffer(review_ids, dtype=">u8").reshape(-1, 2)[:, 0].astype(np.uint64)
    hashes = np.array(
        [xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) for text in rest],
        np.uint64,
    )
    return (ids & ~np.uint64(0xFFFF)) | (hashes >> np.uint64(48))


def pack_rows(text_hashes: bytes, keys: np.ndarray) -> np.ndarray:
    """Return a unit's rows sorted by text hash (16 bytes each): a bucket is a stretch of them."""
    packed = np.empty(len(keys), dtype=PACKED_ROW)
    halves = np.frombuffer(text_hashes, dtype=">u8").reshape(-1, 2)
    packed["high"], packed["low"] = halves[:, 0], halves[:, 1]
    packed["key"] = keys
    packed["row"] = np.arange(len(keys), dtype=np.uint32)
    return packed[np.argsort(packed["high"], kind="stable")]


def sort_copies(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of a bucket, their units, and the order of copies, that which stays first."""
    rows = np.concatenate([np.empty(0, PACKED_ROW), *parts])
    unit = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    halves = rows["low"].astype(np.uint64), rows["high"].astype(np.uint64)
    return rows, unit, np.lexsort((rows["row"], unit, rows["key"], *halves))


def find_duplicates(parts: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield ROW_NUMBER of copies in a bucket that do not stay, by the number of their unit."""
    rows, unit, order = sort_copies(parts)
    goes = np.sort(order[~mark_firsts(rows["high"][order], rows["low"][order])])
    return group_by_unit(unit[goes], rows["row"][goes])


def make_codes_kind(labels: int) -> np.dtype:
    """Return the rows of `.codes`, ordered as `.hashes`: half a text's hash, codes of classes."""
    return np.dtype([("high", ">u8"), ("codes", "<u4", (labels,))])


def find_contradictions(
    bucket: Bucket, folder: str, counts: list[UnitSize], labels: int
) -> Iterator[UnitRows]:
    """Yield CONTRADICTION by unit, of reviews that stay of copies with different classes."""
    kind = "codes", make_codes_kind(labels)
    codes = list(buckets.read_units(bucket, folder, counts, "hashes", kind))
    parts = list(buckets.read_units(bucket, folder, counts, "hashes"))
    rows, unit, order = sort_copies(parts)
    is_first = mark_firsts(rows["high"][order], rows["low"][order])
    firsts, group = order[is_first], np.cumsum(is_first) - 1
    by_unit: list[tuple[int, np.ndarray]] = []
    for column in range(labels if codes else 0):
        values = np.concatenate([each["codes"][:, column] for each in codes])[order]
        known = np.flatnonzero(values)
        known = known[np.lexsort((values[known], group[known]))]
        known = known[mark_firsts(group[known], values[known])]
        bounds = find_runs(group[known])
        several = np.flatnonzero(np.diff(bounds) > 1)
        texts = firsts[group[known[bounds[several]]]]
        found = np.zeros(len(texts), CONTRADICTION)
        found["row"], found["column"] = rows["row"][texts], column
        for k in range(MAX_CODES):
            places = bounds[several] + k
            is_there = places < bounds[several + 1]
            found["codes"][is_there, k] = values[known[places[is_there]]]
        by_unit += group_by_unit(unit[texts], found)
    return collect_units(by_unit, counts)


def group_by_unit(units: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the rows of each unit and its number; `units` has one for each row."""
    order = np.argsort(units, kind="stable")
    units, rows = units[order], rows[order]
    for first, last in pairwise(find_runs(units).tolist()):
        yield units[first], rows[first:last]


def collect_units(
    found: Iterable[tuple[int, np.ndarray]], units: Sequence[UnitSize]
) -> Iterator[UnitRows]:
    """Yield what was found in a bucket by unit, the largest first: they are dealt out so."""
    packed: dict[int, bytes] = {}
    for number, rows in found:
        packed[number] = packed.get(number, b"") + rows.tobytes()
    for number in sorted(packed, key=lambda number: -units[number].prepared):
        yield units[number].unit, packed[number]


def list_buckets(counts: list[UnitSize]) -> Iterator[Bucket]:
    reviews = sum(unit.prepared for unit in counts)
    return buckets.list_buckets(reviews, BUCKET_ROWS, reviews)


def find_in_bucket(bucket: Bucket, folder: str, counts: list[UnitSize]) -> Iterator[UnitRows]:
    """Yield ROW_NUMBER of copies by unit, from the `.hashes` of all units in a folder."""
    parts = list(buckets.read_units(bucket, folder, counts, "hashes"))
    return collect_units(find_duplicates(parts), counts)
