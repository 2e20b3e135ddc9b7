"""Cuts files of hashes into buckets by their first bits, so that workers share what is compared.

Where each of MAX_BUCKETS begins in a file is a small file beside it; those of many files are joined
(`join_starts`). A worker reads a bucket as one stretch of each file, several buckets at once.
"""

import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit, UnitSize, measure_units

MAX_BUCKETS = 1024  # whose places in a file are known
MOST_BUCKETS = 1 << 17
"""Of more than MAX_BUCKETS a worker takes one out of what it reads, for billions of reviews."""
MAX_PARTS = 128
"""More workers than these have nothing to do while the others search, a fifth of a corpus job."""
Part = tuple[int, int, int]
"""Its number, how many there are, and of how many buckets all of them are made."""
STARTS = np.dtype("<u8")
KINDS = ("hashes", "runs", "heldout", "bands")
"""Endings of the files of a prepared unit, in the order in which `.starts` has them."""
JOINED = "all.starts"  # beside them: the starts of all units
SPOOLED_ROWS = 1 << 16  # rows that are sorted together, at least, while they are collected
BucketReader = Callable[[int], Iterator[np.ndarray]]
"""Yields the rows of a bucket, by its number, file by file."""
SHARED_REVIEWS, SHARED_BUCKETS = 100_000, 8
"""From so many reviews on at least so many buckets; one takes 0.2 ms of each unit."""


def number_buckets(hashes: np.ndarray, of: int = MAX_BUCKETS) -> np.ndarray:
    """Return the bucket of each hash (uint64), of MAX_BUCKETS as uint16, which sorts fast."""
    kind = np.uint16 if of <= 1 << 16 else np.uint32
    return (hashes >> np.uint64(65 - of.bit_length())).astype(kind)


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

    def read_starts(self, part: Part) -> np.ndarray:
        """Return where each bucket of a part begins, and the end, int64 [buckets + 1, files]."""
        number, parts, of = part[0], part[1], min(part[2], MAX_BUCKETS)
        first, last = (k * (MAX_BUCKETS // parts) for k in (number, number + 1))
        files, row = len(self.paths), len(self.paths) * STARTS.itemsize
        begin = (self.kind * (MAX_BUCKETS + 1) + first) * row
        size = (last + 1 - first) * row
        packed = storage.read_range(self.starts, begin, begin + size) if files else b""
        table = np.frombuffer(packed, STARTS).reshape(last + 1 - first, files)
        return table[:: MAX_BUCKETS // of].astype(np.int64)

    def count_rows(self) -> int:
        """Return the rows of all files."""
        return int(self.read_starts((0, 1, 1))[-1].sum())


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
    units, joined = measure_units(counts), storage.join_path(folder, JOINED)
    if not storage.exists(joined):
        join_starts([storage.join_path(folder, f"{c.unit}.starts") for c in units], joined)
    return units


def list_unit_files(folder: str, units: Sequence[UnitSize], kind: str) -> BucketedFiles:
    """Return the files of one of KINDS of all prepared units, in the order of their names."""
    paths = tuple(storage.join_path(folder, f"{unit.unit}.{kind}") for unit in units)
    joined = storage.join_path(folder, JOINED)
    return BucketedFiles(paths, joined, KINDS.index(kind))


def count_buckets(rows: int, bucket_rows: int, reviews: int = 0) -> int:
    """Return how many buckets to make, a power of two, of about `bucket_rows` at most."""
    fewest = SHARED_BUCKETS if reviews >= SHARED_REVIEWS else 1
    return min(MOST_BUCKETS, max(fewest, 1 << (rows // bucket_rows).bit_length()))


def list_parts(of: int) -> Iterator[Part]:
    """Yield the parts that share so many buckets."""
    parts = min(of, MAX_PARTS)
    return ((part, parts, of) for part in range(parts))


def list_buckets_of(part: Part) -> range:
    """Return the numbers of the buckets of a part."""
    number, parts, of = part
    return range(number * (of // parts), (number + 1) * (of // parts))


class BucketedRows:
    """Spools rows of a kind, and writes them bucket by bucket of their hashes."""

    def __init__(self, kind: np.dtype) -> None:
        self._kind, self._by = kind, name_hashes(kind)
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
            numbers = number_buckets(rows[self._by].astype(np.uint64, copy=False))
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


def name_hashes(kind: np.dtype) -> str:
    """Return the column by which rows of this kind are in buckets."""
    return (kind.names or ())[0]


@contextmanager
def open_part(part: Part, files: BucketedFiles, kind: np.dtype) -> Iterator[BucketReader]:
    """Yield what reads the buckets of a part, within the block."""
    starts = files.read_starts(part) * kind.itemsize
    within, hashes = max(1, part[2] // MAX_BUCKETS), name_hashes(kind)
    first = list_buckets_of(part)[0] // within

    def list_stretches(begin: int, end: int) -> Iterator[storage.Stretch]:
        return zip(files.paths, starts[begin].tolist(), starts[end].tolist(), strict=True)

    with tempfile.TemporaryFile() as spool:
        begins: list[int] = []
        if len(list_buckets_of(part)) > 1 and any(map(storage.is_remote, files.paths)):
            for packed in storage.read_each(list_stretches(0, -1)):
                begins.append(spool.tell())
                spool.write(packed)

        def read_packed(k: int) -> Iterator[bytes]:
            if not begins:
                yield from storage.read_each(list_stretches(k, k + 1))
            places, sizes = starts[k] - starts[0], starts[k + 1] - starts[k]
            for begin, place, size in zip(begins, places, sizes, strict=False):
                spool.seek(begin + int(place))
                yield spool.read(int(size))

        def read_bucket(number: int) -> Iterator[np.ndarray]:
            for packed in read_packed(number // within - first):
                rows = np.frombuffer(packed, kind)
                if within > 1:
                    rows = rows[number_buckets(rows[hashes].astype(np.uint64), part[2]) == number]
                yield rows

        yield read_bucket
