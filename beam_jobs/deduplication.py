"""Which copy of a repeated text stays, decided on packed numbers alone.

Every prepared review gives one packed row of 28 bytes. Of the rows with the same text hash the one with the smallest
key stays, a hash of all its fields; so neither the order of the dump nor the number of workers decides. Only copies
equal in every field that is kept tie, and then the first in the dump stays.
"""

import numpy as np

PACKED = np.dtype([("high", ">u8"), ("low", ">u8"), ("key", "<u8"), ("row", "<u4")])
ROW_NUMBER = np.dtype("<u4")
BUCKET_ROWS = 1 << 20  # rows of a bucket: 28 MiB, some 100 while it is sorted
MOST_BUCKETS = 256


def pack(text_hashes: bytes, keys: list[int]) -> np.ndarray:
    """Rows of one unit sorted by text hash (16 bytes each), so that a bucket is one stretch of them."""
    packed = np.empty(len(keys), dtype=PACKED)
    halves = np.frombuffer(text_hashes, dtype=">u8").reshape(-1, 2)
    packed["high"], packed["low"] = halves[:, 0], halves[:, 1]
    packed["key"] = np.array(keys, dtype=np.uint64)
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


def losers(units: list[str], parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    """For the rows of one bucket, given by unit in the order of the dump: the row numbers that go, by unit."""
    if not parts:
        return {}
    rows = np.concatenate(parts)
    unit = np.repeat(np.arange(len(units), dtype=np.uint32), [len(p) for p in parts])
    order = np.lexsort((rows["row"], unit, rows["key"], rows["low"].astype(np.uint64), rows["high"].astype(np.uint64)))
    rows, unit = rows[order], unit[order]
    again = np.zeros(len(rows), dtype=bool)
    again[1:] = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
    gone_unit, gone_row = unit[again], rows["row"][again]
    return {units[u]: np.sort(gone_row[gone_unit == u]) for u in np.unique(gone_unit)}
