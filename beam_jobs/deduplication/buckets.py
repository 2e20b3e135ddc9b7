"""Cuts files of hashes into buckets by their first bits, so that workers share what is compared.

Where each of MAX_BUCKETS begins in a file is a small file beside it; those of many files are joined
(`join_starts`). A worker reads a bucket as one stretch of each file.
"""

import mmap
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit, UnitSize

MAX_BUCKETS = 1024  # whose places in a file are known
Bucket = tuple[int, int]  # its number, and how many there are
STARTS = np.dtype("<u8")
PACKED_ROW = np.dtype([("high", ">u8"), ("low", ">u8"), ("key", "<u8"), ("row", "<u4")])
"""The hash of a text in two halves, the key that orders copies (exact.py), the review's number."""
RUN = np.dtype([("run", "<u8"), ("text", "<u4"), ("words", "<u4")])
"""The hash of a run, the number of a text that has it, and half of the hash of its words."""
HELD_RUN = np.dtype([("run", "<u8"), ("text", "<u8"), ("row", "<u4"), ("size", "<u4")])
"""A hash, the hash of the words of a text that has it, that review's number, its distinct runs."""
BAND = np.dtype([("run", "<u8"), ("text", "<u8"), ("key", "<u8"), ("row", "<u4")])
"""A hash of a band, half of that of the text, the key that orders copies, the review's number."""
KINDS = {"hashes": PACKED_ROW, "runs": RUN, "heldout": HELD_RUN, "bands": BAND}
"""Files of a prepared unit, by ending, in the order in which `.starts` has them, and their rows."""
JOINED = "all.starts"  # beside them: the starts of all units
SPOOLED_ROWS = 1 << 16  # rows that are sorted together, at least, while they are collected
SHARED_REVIEWS, SHARED_BUCKETS = 100_000, 8  # so many reviews have so many buckets


def number_buckets(hashes: np.ndarray, of: int = MAX_BUCKETS) -> np.ndarray:
    """Return the bucket of each hash (uint64) as uint16, which sorts fast."""
    return (hashes >> np.uint64(65 - of.bit_length())).astype(np.uint16)


def find_starts(hashes: np.ndarray) -> np.ndarray:
    """Return where each of MAX_BUCKETS buckets begins among hashes (uint64), and the end."""
    return compute_starts(np.bincount(number_buckets(hashes), minlength=MAX_BUCKETS))


def compute_starts(counts: np.ndarray) -> np.ndarray:
    """Return where each of several stretches of these lengths begins, and the end, STARTS."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(STARTS)


@dataclass(frozen=True)
class BucketedFiles:
    """Files of rows, bucket by bucket."""

    paths: tuple[str, ...] = ()
    starts: str = ""  # the file that `join_starts` wrote of them
    kind: int = 0  # which of its kinds they are

    def read_bounds(self, bucket: Bucket) -> np.ndarray:
        """Return where a bucket begins and ends in each file, in rows, int64 [2, files]."""
        if not self.paths:
            return np.zeros((2, 0), np.int64)
        row, before = len(self.paths) * STARTS.itemsize, self.kind * (MAX_BUCKETS + 1)
        places = (before + edge * (MAX_BUCKETS // bucket[1]) for edge in (bucket[0], bucket[0] + 1))
        packed = storage.read_each((self.starts, n * row, (n + 1) * row) for n in places)
        return np.frombuffer(b"".join(packed), STARTS).reshape(2, -1).astype(np.int64)

    def count_rows(self) -> int:
        return int(self.read_bounds((0, 1))[1].sum())


NO_FILES = BucketedFiles()


def join_starts(paths: Sequence[str], joined: str) -> None:
    """Write one file of the starts of these files: uint64 [kinds, MAX_BUCKETS + 1, files]."""
    with storage.atomic_path(joined) as path:
        for number, packed in enumerate(storage.map_paths(storage.read_bytes, paths)):
            starts = np.frombuffer(packed, STARTS)
            if not number:
                table = np.memmap(path, STARTS, "w+", shape=(len(starts), len(paths)))
            table[:, number] = starts


def join_files(paths: Sequence[str], joined: str, others: Sequence[str] = ()) -> BucketedFiles:
    """Join the starts of files, NAME.starts for NAME; return the files, by name."""
    ordered = tuple(sorted([*paths, *others]))
    if ordered:
        join_starts([f"{path}.starts" for path in ordered], joined)
    return BucketedFiles(ordered, joined)


def join_unit_starts(counts: list[PreparedUnit], folder: str) -> list[UnitSize]:
    """Join the starts of all prepared units, once; return the units' sizes in their order."""
    lines, rows, units = Counter[str](), Counter[str](), list[UnitSize]()
    for one in sorted(counts, key=lambda unit: unit.unit):
        before = lines[one.file], rows[one.file]
        units.append(UnitSize(one.unit, one.prepared, one.held_out_runs, *before))
        lines[one.file] += one.lines
        rows[one.file] += one.read
    joined = storage.join_path(folder, JOINED)
    if not storage.exists(joined):
        join_starts([storage.join_path(folder, f"{c.unit}.starts") for c in units], joined)
    return units


def list_buckets(rows: int, bucket_rows: int, reviews: int = 0) -> Iterator[Bucket]:
    """Yield the buckets, a power of two, of about `bucket_rows` at most."""
    fewest = SHARED_BUCKETS if reviews >= SHARED_REVIEWS else 1
    of = min(MAX_BUCKETS, max(fewest, 1 << (rows // bucket_rows).bit_length()))
    return ((number, of) for number in range(of))


def read_bucket(bucket: Bucket, files: BucketedFiles, kind: np.dtype) -> Iterator[np.ndarray]:
    """Yield the rows of a bucket, file by file."""
    begins, ends = (files.read_bounds(bucket) * kind.itemsize).tolist()
    packed = storage.read_each(zip(files.paths, begins, ends, strict=True))
    return (np.frombuffer(rows, kind) for rows in packed)


def read_units(
    bucket: Bucket,
    folder: str,
    units: Sequence[UnitSize],
    kind: str,
    rows: tuple[str, np.dtype] | None = None,
) -> Iterator[np.ndarray]:
    """Yield a bucket of one of KINDS of all units; or of `rows`, ending and kind in its order."""
    ending, dtype = rows or (kind, KINDS[kind])
    paths = tuple(storage.join_path(folder, f"{unit.unit}.{ending}") for unit in units)
    joined = storage.join_path(folder, JOINED)
    return read_bucket(bucket, BucketedFiles(paths, joined, [*KINDS].index(kind)), dtype)


class BucketedRows:
    """Spools rows of a kind, and writes them bucket by bucket of their hashes."""

    def __init__(self, kind: np.dtype) -> None:
        self._kind = kind
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # closed by save
        self._counts: list[np.ndarray] = []
        self._waiting: list[np.ndarray] = []
        self._rows = 0  # how many wait

    def add_rows(self, rows: np.ndarray) -> None:
        """Add rows, which are not changed any more."""
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= SPOOLED_ROWS:
            self._sort_waiting()

    def _sort_waiting(self) -> None:
        if self._waiting:
            rows = np.concatenate(self._waiting, dtype=self._kind)  # which may be big-endian
            self._waiting, self._rows = [], 0
            hashes = rows[(self._kind.names or ())[0]]  # the first column decides
            numbers = number_buckets(hashes.astype(np.uint64, copy=False))
            self._spool.write(rows.take(np.argsort(numbers, kind="stable")).tobytes())
            self._counts.append(np.bincount(numbers, minlength=MAX_BUCKETS))

    def save(self, path: str) -> np.ndarray:
        """Write the rows, once; return where each bucket begins (`compute_starts`)."""
        self._sort_waiting()
        counts = np.array(self._counts, np.int64).reshape(-1, MAX_BUCKETS)
        ends = np.cumsum(counts).reshape(counts.shape) * self._kind.itemsize
        begins = ends - counts * self._kind.itemsize
        with (
            self._spool as spool,
            storage.atomic_path(path) as written,
            open(written, "wb") as file,
        ):
            spool.flush()
            if size := int(ends.max(initial=0)):  # an empty file cannot be mapped
                rows = memoryview(mmap.mmap(spool.fileno(), size, access=mmap.ACCESS_READ))
                for bucket in range(MAX_BUCKETS):
                    stretches = begins[:, bucket].tolist(), ends[:, bucket].tolist()
                    for begin, end in zip(*stretches, strict=True):
                        file.write(rows[begin:end])
        return compute_starts(counts.sum(axis=0))
