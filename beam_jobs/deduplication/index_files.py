"""Writes the files of an index of held-out texts.

exact.npy                        hashes of whole texts
runs.npy                         RUN, by run: a hash, and the number of a text that has it
stretches.npy                    where the runs of the same first bits begin, and the end
filter.npy                       a Bloom filter of the runs, each with three bits in the word that
                                 its first bits number
sizes.npy                        by text: how many runs it has
index.json                       written last: the index is whole if and only if it is there
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from beam_jobs.deduplication import run_filter
from beam_jobs.deduplication.run_filter import compute_shift
from beam_jobs.job import storage

BUCKETS = 256
STRETCH_RUNS = 64
"""Runs that are read from the disk for one of them, at most on average."""
RUN = np.dtype([("run", "<u8"), ("text", "<u4")])
TEXT_COLUMNS = ("exact", "sizes")
COLUMNS = (*TEXT_COLUMNS, "runs", "stretches", "filter")


class RunSorter:
    """Collects runs by their first bits in files of a temporary folder, and writes them bucket by
    bucket.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        folder = self._open.enter_context(tempfile.TemporaryDirectory())
        self._buckets = [
            self._open.enter_context(open(os.path.join(folder, str(bucket)), "w+b"))  # noqa: SIM115
            for bucket in range(BUCKETS)
        ]

    def add_rows(self, rows: np.ndarray) -> None:
        """Add rows (RUN) in the order of their runs."""
        firsts = np.arange(BUCKETS + 1, dtype=np.uint64)
        bounds = np.searchsorted(rows["run"] >> np.uint64(56), firsts).tolist()
        for bucket, start, stop in zip(self._buckets, bounds, bounds[1:], strict=False):
            bucket.write(rows[start:stop].tobytes())

    def save(self, folder: str) -> None:
        """Write the columns of the runs into a local folder and forget the rows."""
        total = sum(bucket.tell() for bucket in self._buckets) // RUN.itemsize
        words = run_filter.count_words(total)
        stretches = BUCKETS << max(0, ((total - 1) // STRETCH_RUNS // BUCKETS).bit_length())
        with (
            self._open,
            open_column(folder, "runs", RUN, total) as runs,
            open_column(folder, "stretches", "<u8", stretches + 1) as begins,
            open_column(folder, "filter", "<u8", words) as marks,
        ):
            written = 0
            for rows in self._sort_buckets():
                within = rows["run"] << np.uint64(8)  # what is left of a hash in its bucket
                parts = np.arange(stretches // BUCKETS, dtype=np.uint64)
                firsts = np.searchsorted(within >> compute_shift(len(parts)), parts)
                places = within >> compute_shift(words // BUCKETS)
                found = run_filter.build_filter(rows["run"], places, words // BUCKETS)
                runs.write(rows.tobytes())
                begins.write((firsts + written).astype("<u8").tobytes())
                marks.write(found.tobytes())
                written += len(rows)
            begins.write(np.array([written], "<u8").tobytes())

    def _sort_buckets(self) -> Iterator[np.ndarray]:
        for bucket in self._buckets:
            bucket.seek(0)
            rows = np.frombuffer(bucket.read(), RUN)
            yield rows.take(np.argsort(rows["run"], kind="stable"))


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


def save_text_columns(folder: str, exact: np.ndarray, sizes: np.ndarray) -> None:
    """Write hashes of whole texts, ascending, and how many runs each text has."""
    np.save(os.path.join(folder, "exact.npy"), exact.astype("<u8"))
    np.save(os.path.join(folder, "sizes.npy"), sizes.astype("<u4"))


def finish_index(source: str, folder: str) -> None:
    """Move the columns of an index from a local folder to where it belongs, and write index.json,
    which says what they are.
    """
    texts = len(np.load(os.path.join(source, "sizes.npy"), mmap_mode="r"))
    digests = {}
    for name in COLUMNS:
        path = os.path.join(source, f"{name}.npy")
        digests[name] = storage.hash_file(path)
        with storage.atomic_path(storage.join_path(folder, f"{name}.npy")) as final:
            shutil.move(path, final)
    storage.write_json(storage.join_path(folder, "index.json"), {"texts": texts, **digests})


def copy_index(folder: str, local: str) -> None:
    """Copy an index into a local folder."""
    for name in COLUMNS:
        with (
            storage.open_bytes(storage.join_path(folder, f"{name}.npy")) as source,
            open(os.path.join(local, f"{name}.npy"), "wb") as copy,
        ):
            shutil.copyfileobj(source, copy, 1 << 20)
