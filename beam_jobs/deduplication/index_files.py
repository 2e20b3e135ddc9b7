"""Writes the files of an index of held-out texts, whole or in parts that several workers write.

exact.npy                        hashes of whole texts
runs.npy                         RUN, by run: a hash, and the number of a text that has it
stretches.npy                    where the runs of the same first bits begin, and the end
filter.npy                       a Bloom filter of the runs, each with three bits in the word that
                                 its first bits number
sizes.npy, dumps.npy             by text: how many runs it has, from which dump on it is held out
index.json                       written last: the index is whole if and only if it is there

part-00.{runs,stretches,filter}  of the runs that begin with the same bits: the numbers that belong
                                 into the files above, stretches counted from the part's first run
part-00.json                     how many there are of each; written last
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from beam_jobs.job import storage

BUCKETS = 256
MIN_WORD_BITS = 10
RUNS_PER_WORD = 4
"""Of the filter that spares most searches: 2^10 words of 64 bits, or so many runs each, at most."""
STRETCH_RUNS = 64
"""Runs that are read from the disk for one of them, at most on average."""
RUN = np.dtype([("run", "<u8"), ("text", "<u4")])
RUN_COLUMNS = {"runs": RUN, "stretches": np.dtype("<u8"), "filter": np.dtype("<u8")}
TEXT_COLUMNS = ("exact", "sizes", "dumps")
COLUMNS = (*TEXT_COLUMNS, *RUN_COLUMNS)
PART_NAME = r"part-\d\d\.json"


class RunSorter:
    """Collects runs by their first bits in files of a temporary folder, all or those of one of
    `of` parts, and writes them bucket by bucket.
    """

    def __init__(self, part: int = 0, of: int = 1) -> None:
        self.part = part
        self._first, self._count = BUCKETS // of * part, BUCKETS // of
        self._open = ExitStack()
        folder = self._open.enter_context(tempfile.TemporaryDirectory())
        self._buckets = [
            self._open.enter_context(open(os.path.join(folder, str(bucket)), "w+b"))  # noqa: SIM115
            for bucket in range(self._count)
        ]

    def add_rows(self, rows: np.ndarray) -> None:
        """Add rows (RUN) in the order of their runs; those of other parts are left out."""
        firsts = np.arange(self._first, self._first + self._count + 1, dtype=np.uint64)
        bounds = np.searchsorted(rows["run"] >> np.uint64(56), firsts).tolist()
        for bucket, start, stop in zip(self._buckets, bounds, bounds[1:], strict=False):
            bucket.write(rows[start:stop].tobytes())

    def count_rows(self) -> int:
        return sum(bucket.tell() for bucket in self._buckets) // RUN.itemsize

    def save(self, folder: str, total: int) -> None:
        """Write the part and forget the rows; `total` are the runs of all parts."""
        prefix = storage.join_path(folder, f"part-{self.part:02d}")
        written = dict.fromkeys(RUN_COLUMNS, 0)
        with self._open, ExitStack() as ends:
            files = {}
            for column in RUN_COLUMNS:
                path = ends.enter_context(storage.atomic_path(f"{prefix}.{column}"))
                files[column] = ends.enter_context(open(path, "wb"))
            for columns in self._sort_buckets(total):
                for column, numbers in columns.items():
                    files[column].write(numbers.tobytes())
                    written[column] += len(numbers)
        storage.write_json(f"{prefix}.json", written)

    def _sort_buckets(self, total: int) -> Iterator[dict[str, np.ndarray]]:
        """Yield, bucket by bucket, what belongs into each of RUN_COLUMNS."""
        word_bits = max(MIN_WORD_BITS, ((total - 1) // RUNS_PER_WORD).bit_length())
        words = (1 << word_bits) // BUCKETS
        stretches = 1 << max(0, ((total - 1) // STRETCH_RUNS // BUCKETS).bit_length())
        read = 0
        for bucket in self._buckets:
            bucket.seek(0)
            rows = np.frombuffer(bucket.read(), RUN)
            rows = rows[np.argsort(rows["run"], kind="stable")]
            within = rows["run"] << np.uint64(8)  # what is left of a hash in its bucket
            firsts = np.searchsorted(
                within >> compute_shift(stretches), np.arange(stretches, dtype=np.uint64)
            )
            yield {
                "runs": rows,
                "stretches": (firsts + read).astype("<u8"),
                "filter": build_filter(rows["run"], within >> compute_shift(words), words),
            }
            read += len(rows)


def compute_shift(parts: int) -> np.uint64:
    """Return how far a hash is shifted to number one of so many parts, a power of two."""
    return np.uint64(65 - parts.bit_length())


def mark_runs(runs: np.ndarray) -> np.ndarray:
    """Return the bits of each run in its word of the filter, uint64 [runs]."""
    one, low = np.uint64(1), np.uint64(63)
    marks = one << (runs & low)
    marks |= one << (runs >> np.uint64(6) & low)
    marks |= one << (runs >> np.uint64(12) & low)
    return marks


def build_filter(runs: np.ndarray, places: np.ndarray, words: int) -> np.ndarray:
    """Return so many words with the bits of runs, whose places among them ascend."""
    filled, firsts = np.unique(places, return_index=True)
    found = np.zeros(words, "<u8")
    if len(runs):
        found[filled] = np.bitwise_or.reduceat(mark_runs(runs), firsts)
    return found


def is_part_written(folder: str, part: int) -> bool:
    return storage.exists(storage.join_path(folder, f"part-{part:02d}.json"))


def join_parts(source: str, folder: str) -> None:
    """Write the columns of RUN_COLUMNS into a local folder, of all parts that are in `source`."""
    names = [name for name in storage.list_names(source) if re.fullmatch(PART_NAME, name)]
    prefixes = [storage.join_path(source, name.removesuffix(".json")) for name in names]
    parts = [json.loads(storage.read_bytes(f"{prefix}.json")) for prefix in prefixes]
    for column, kind in RUN_COLUMNS.items():
        numbers = sum(part[column] for part in parts) + (column == "stretches")
        read = 0
        with open_column(folder, column, kind, numbers) as file:
            for prefix, part in zip(prefixes, parts, strict=True):
                with storage.open_bytes(f"{prefix}.{column}") as source_file:
                    if column == "stretches":
                        file.write((np.frombuffer(source_file.read(), kind) + read).tobytes())
                    else:
                        shutil.copyfileobj(source_file, file, 1 << 20)
                read += part["runs"]
            if column == "stretches":
                file.write(np.array([read], kind).tobytes())


def remove_parts(folder: str) -> None:
    for name in storage.list_names(folder):
        if name.startswith("part-"):
            storage.remove_path(storage.join_path(folder, name))


@contextmanager
def open_column(folder: str, name: str, kind: DTypeLike, rows: int) -> Iterator[BinaryIO]:
    """Open a .npy file of so many rows, which the caller writes."""
    with open(os.path.join(folder, f"{name}.npy"), "wb") as file:
        descr = np.lib.format.dtype_to_descr(np.dtype(kind))
        header = {"descr": descr, "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        yield file


def is_written(folder: str) -> bool:
    """Return whether a folder has a whole index of these columns; an older one had others."""
    path = storage.join_path(folder, "index.json")
    return storage.exists(path) and json.loads(storage.read_bytes(path)).keys() >= set(COLUMNS)


def save_text_columns(folder: str, exact: np.ndarray, sizes: np.ndarray, dumps: np.ndarray) -> None:
    """Write hashes of whole texts, ascending, and of each text its runs and its dump."""
    columns = (exact.astype("<u8"), sizes.astype("<u4"), dumps.astype("<u2"))
    for name, column in zip(TEXT_COLUMNS, columns, strict=True):
        with (
            storage.atomic_path(storage.join_path(folder, f"{name}.npy")) as path,
            open(path, "wb") as file,
        ):
            np.save(file, column)


def finish_index(source: str, folder: str) -> None:
    """Move the columns of a whole index from a local folder to where it belongs, unless it is
    there, and write index.json, which says what they are.
    """
    texts = len(np.load(os.path.join(source, "sizes.npy"), mmap_mode="r"))
    digests = {}
    for name in COLUMNS:
        path = os.path.join(source, f"{name}.npy")
        digests[name] = storage.hash_file(path)
        if source != folder:
            with storage.atomic_path(storage.join_path(folder, f"{name}.npy")) as final:
                shutil.move(path, final)
    storage.write_json(storage.join_path(folder, "index.json"), {"texts": texts, **digests})


def copy_index(folder: str, local: str) -> None:
    """Copy an index, whole or in parts, into a local folder, where it is whole."""
    is_whole = is_written(folder)
    for name in COLUMNS if is_whole else TEXT_COLUMNS:
        with (
            storage.open_bytes(storage.join_path(folder, f"{name}.npy")) as source,
            open(os.path.join(local, f"{name}.npy"), "wb") as copy,
        ):
            shutil.copyfileobj(source, copy, 1 << 20)
    if not is_whole:
        join_parts(folder, local)
