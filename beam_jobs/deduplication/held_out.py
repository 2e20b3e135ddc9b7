"""Hashes the runs of words of a corpus's reviews, so that no near copy of a dev or test review is
trained on.

Who has the text leaves files of runs, bucket by bucket (buckets.py), for held_out_matches.py:

0000-00000.runs      RUN of the reviews that may be trained on, by row number
0000-00000.heldout   HELD_RUN of the dev and test reviews, each run once a review
00000.heldout        those of earlier corpora, which count their dev and test reviews
"""

import json
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs.deduplication.buckets import (
    MAX_BUCKETS,
    encode_counts,
    number_buckets,
)
from beam_jobs.deduplication.index_files import RUN
from beam_jobs.deduplication.overlaps import drop_repeated_runs, list_runs
from beam_jobs.job import storage
from beam_jobs.text.splits import SPLITS
from beam_jobs.text.word_runs import BATCH_TEXTS, split_words

HELD_OUT_SPLITS = ("dev", "test")
"""The splits that models are chosen and judged by."""
FIRST_DUMP = 1
"""Number of the job's first dump among those that are held out; earlier corpora are 0."""
HELD_RUN = np.dtype([("run", "<u8"), ("text", "<u4"), ("size", "<u4")])
"""A hash, the number of a text that has it, and how many distinct runs the text has."""
HeldOutFile = dict[str, Any]
"""The "path" of runs, where each bucket begins in it ("starts"), and how many texts it numbers
("texts")."""


def mark_held_out(sides: np.ndarray) -> np.ndarray:
    """Return, per index into SPLITS, whether it is dev or test."""
    return np.isin(sides, [SPLITS.index(split) for split in HELD_OUT_SPLITS])


class BucketedRows:
    """Collects rows that begin with a hash in a temporary file, batch by batch, and writes them
    bucket by bucket.
    """

    def __init__(self, kind: np.dtype) -> None:
        self._size = kind.itemsize
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # closed by save
        self._counts = [np.zeros(MAX_BUCKETS, np.int64)]

    def add_rows(self, rows: np.ndarray) -> None:
        """Add rows with a column "run"."""
        buckets = number_buckets(rows["run"])
        self._spool.write(rows.take(np.argsort(buckets, kind="stable")).tobytes())
        self._counts.append(np.bincount(buckets, minlength=MAX_BUCKETS))

    def save(self, path: str) -> str:
        """Write the rows, once; return where each bucket begins."""
        counts = np.array(self._counts)
        with self._spool as spool:
            write_columns(spool, counts, self._size, path)
        return encode_counts(counts.sum(axis=0))


def write_columns(spool: IO[bytes], counts: np.ndarray, size: int, path: str) -> None:
    """Write rows of `size` bytes column by column that lie batch by batch in a temporary file:
    counts[batch, column] of each one after the other.
    """
    ends = np.cumsum(counts).reshape(counts.shape)
    spool.flush()
    found = map_file(spool, int(counts.sum()) * size)
    with storage.atomic_path(path) as written, open(written, "wb") as file:
        for rows, end in zip(counts.T.ravel().tolist(), ends.T.ravel().tolist(), strict=True):
            file.write(found[(end - rows) * size : end * size])


def map_file(file: IO[bytes], size: int) -> memoryview:
    """Return the first bytes of a file, mapped into memory."""
    # an empty file cannot be mapped
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


class RunHasher:
    """Hashes the runs of reviews in the order of their numbers."""

    def __init__(self) -> None:
        self.trained, self.held_out = BucketedRows(RUN), BucketedRows(HELD_RUN)
        self.texts = 0

    def add_texts(self, texts: list[str], is_held_out: np.ndarray) -> np.ndarray:
        """Add the runs of the next reviews; return how many each has, uint32 [texts]."""
        all_runs, all_owners = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
        for start in range(0, len(texts), BATCH_TEXTS):
            runs, owners = list_runs(split_words(texts[start : start + BATCH_TEXTS]))
            all_runs.append(runs)
            all_owners.append(owners + np.uint32(start))
        runs, owners = np.concatenate(all_runs), np.concatenate(all_owners)
        is_held = is_held_out[owners]
        self.trained.add_rows(self._build_rows(RUN, runs[~is_held], owners[~is_held]))
        distinct, distinct_owners = drop_repeated_runs(runs[is_held], owners[is_held])
        held = self._build_rows(HELD_RUN, distinct, distinct_owners)
        held["size"] = np.bincount(distinct_owners)[distinct_owners]
        self.held_out.add_rows(held)
        self.texts += len(texts)
        return np.bincount(owners, minlength=len(texts)).astype(np.uint32)

    def _build_rows(self, kind: np.dtype, runs: np.ndarray, owners: np.ndarray) -> np.ndarray:
        rows = np.empty(len(runs), kind)
        rows["run"], rows["text"] = runs, owners + np.uint32(self.texts)
        return rows


def write_earlier_runs(run: tuple[int, tuple[str, ...]], folder: str) -> HeldOutFile:
    """Write the runs of earlier corpora's dev and test reviews, once; return where they are."""
    number, paths = run
    path = storage.join_path(folder, f"{number:05d}.heldout")
    marker = f"{path}.json"
    if not storage.exists(marker):
        hasher = RunHasher()
        for texts in read_held_out_batches(paths):
            hasher.add_texts(texts, np.ones(len(texts), bool))
        starts = hasher.held_out.save(path)
        storage.write_json(marker, {"path": path, "starts": starts, "texts": hasher.texts})
    return json.loads(storage.read_bytes(marker))


def read_held_out_batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield the dev and test reviews of corpus files: their sentences joined by a space."""
    for path in paths:
        with storage.open_bytes(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=["split", "sentences"]):
                chosen = pc.is_in(batch["split"].cast(pa.string()), pa.array(HELD_OUT_SPLITS))
                yield [" ".join(texts) for texts in batch["sentences"].filter(chosen).to_pylist()]
