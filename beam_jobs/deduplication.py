"""Which copy of a repeated text stays, decided on packed numbers alone.

Every prepared review gives one packed row of 28 bytes. Of the rows with the same text hash that of the earliest dump
stays, within a dump the one with the smallest key: the review id, then stars and verified. So neither the order of a
dump's files and records nor the number of workers decides, and a dump that comes later changes nothing in what the
earlier ones left. Only copies equal in every field that is kept tie, and then the first in the dump stays.

Texts that earlier corpora kept (`seen`) are 16 bytes each: every review with such a text goes.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PACKED = np.dtype([("high", ">u8"), ("low", ">u8"), ("key", "<u8"), ("row", "<u4")])
SEEN = np.dtype([("high", ">u8"), ("low", ">u8")])
ROW_NUMBER = np.dtype("<u4")
BUCKET_ROWS = 1 << 20  # rows of a bucket: 28 MiB, some 100 while it is sorted
MOST_BUCKETS = 256


def keys_of(review_ids: bytes, stars: pa.Array, verified: pa.Array) -> np.ndarray:
    """uint64: the first 59 bits of the review ids (16 bytes each), then 5 for stars and verified."""
    ids = np.frombuffer(review_ids, dtype=">u8").reshape(-1, 2)[:, 0].astype(np.uint64)
    code = 3 * pc.fill_null(stars, 0).to_numpy() + pc.fill_null(verified.cast(pa.int8()), -1).to_numpy() + 1
    return (ids & ~np.uint64(0x1F)) | code.astype(np.uint64)


def pack(text_hashes: bytes, keys: np.ndarray) -> np.ndarray:
    """Rows of one unit sorted by text hash (16 bytes each), so that a bucket is one stretch of them."""
    packed = np.empty(len(keys), dtype=PACKED)
    halves = np.frombuffer(text_hashes, dtype=">u8").reshape(-1, 2)
    packed["high"], packed["low"] = halves[:, 0], halves[:, 1]
    packed["key"] = keys
    packed["row"] = np.arange(len(keys), dtype=np.uint32)
    return packed[np.argsort(packed["high"], kind="stable")]


def offsets(packed: np.ndarray) -> list[int]:
    """Where, in the rows of a unit, each value of the hashes' first byte begins, and the end: 257 numbers."""
    first_bytes = (packed["high"] >> np.uint64(56)).astype(np.int64)
    return [0, *np.cumsum(np.bincount(first_bytes, minlength=MOST_BUCKETS)).tolist()]


def buckets(reviews: int) -> int:
    """How many buckets, a power of two up to 256; a bucket is the stretch of hashes with the same first bits."""
    return min(MOST_BUCKETS, 1 << (reviews // BUCKET_ROWS).bit_length())


def stretch(starts: list[int], bucket: int, of: int) -> tuple[int, int]:
    """First and last row (excluded) of a bucket in the rows of one unit, given its `offsets`."""
    width = MOST_BUCKETS // of
    return starts[bucket * width], starts[(bucket + 1) * width]


def pack_seen(text_hashes: bytes) -> np.ndarray:
    """Hashes (16 bytes each) sorted by their first half."""
    seen = np.frombuffer(text_hashes, dtype=SEEN)
    return seen[np.argsort(seen["high"].astype(np.uint64), kind="stable")]


def among(rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Whether the text of each row is among those that were seen (sorted as `pack_seen` does)."""
    highs, lows = seen["high"].astype(np.uint64), seen["low"]
    wanted = rows["high"].astype(np.uint64)
    places, found = np.searchsorted(highs, wanted), np.zeros(len(rows), dtype=bool)
    while len(seen):  # more than once where several corpora have the text, or a text has the same first half
        here = np.minimum(places, len(seen) - 1)
        equal = (places < len(seen)) & (highs[here] == wanted)
        found |= equal & (lows[here] == rows["low"])
        if not equal.any():
            break
        places += 1
    return found


def losers(
    units: list[str], parts: list[np.ndarray], dumps: list[int], seen: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Row numbers that go, by unit: copies of what stays, and texts seen before.

    Of the rows of one bucket, given by unit in the order of the dump, with the number of the dump of each unit.
    """
    if not parts:
        return {}, {}
    rows = np.concatenate(parts)
    unit = np.repeat(np.arange(len(units), dtype=np.uint32), [len(p) for p in parts])
    before = among(rows, seen)
    known = by_unit(units, unit[before], rows["row"][before])
    rows, unit = rows[~before], unit[~before]
    dump = np.array(dumps, dtype=np.uint32)[unit]
    halves = rows["low"].astype(np.uint64), rows["high"].astype(np.uint64)
    order = np.lexsort((rows["row"], unit, rows["key"], dump, *halves))
    rows, unit = rows[order], unit[order]
    again = np.zeros(len(rows), dtype=bool)
    again[1:] = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
    return by_unit(units, unit[again], rows["row"][again]), known


def by_unit(units: list[str], unit: np.ndarray, row: np.ndarray) -> dict[str, np.ndarray]:
    return {units[u]: np.sort(row[unit == u]) for u in np.unique(unit)}
