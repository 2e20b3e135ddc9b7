"""Holds out the dev and test reviews of a corpus, so that no near copy of one is trained on.

Their runs are hashed by whoever has their text, the first pass or a reader of earlier corpora, and
indexed by one worker. A review is compared with the held-out reviews of its own dump and of earlier
ones: a dump that comes later changes nothing in what the earlier ones left.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs.deduplication.exact_duplicates import ROW_NUMBER
from beam_jobs.deduplication.withholding import RUN, IndexWriter, is_written, list_distinct_runs
from beam_jobs.job import storage
from beam_jobs.text.splits import SPLITS
from beam_jobs.text.word_runs import BATCH_TEXTS, split_words

HELD_OUT_SPLITS = ("dev", "test")
"""The splits that models are chosen and judged by."""
FIRST_DUMP = 1
"""Number of the job's first dump in the index; earlier corpora are 0."""


def mark_held_out(sides: np.ndarray) -> np.ndarray:
    """Return, per index into SPLITS, whether it is dev or test."""
    return np.isin(sides, [SPLITS.index(split) for split in HELD_OUT_SPLITS])


def list_held_out_runs(texts: list[str], sides: np.ndarray, first_row: int) -> np.ndarray:
    """Return the distinct runs (RUN) of the dev and test reviews among `texts`, by row number."""
    rows = np.flatnonzero(mark_held_out(sides))
    return hash_runs([texts[row] for row in rows], rows + first_row)


def hash_runs(texts: list[str], numbers: np.ndarray) -> np.ndarray:
    """Return the distinct runs (RUN) of each text, under its number."""
    parts = [np.empty(0, RUN)]
    for start in range(0, len(texts), BATCH_TEXTS):
        runs, owners = list_distinct_runs(split_words(texts[start : start + BATCH_TEXTS]))
        part = np.empty(len(runs), RUN)
        part["run"], part["text"] = runs, numbers[start + owners]
        parts.append(part)
    return np.concatenate(parts)


def write_earlier_runs(run: tuple[int, tuple[str, ...]], folder: str) -> str:
    """Write the runs of earlier corpora's dev and test reviews, once, and return the path."""
    number, paths = run
    output = storage.join_path(folder, f"{number:05d}.heldout")
    if not storage.exists(output):
        parts, texts = io.BytesIO(), 0
        for batch in read_held_out_batches(paths):
            parts.write(hash_runs(batch, np.arange(texts, texts + len(batch))).tobytes())
            texts += len(batch)
        storage.write_bytes(output, parts.getvalue())
    return output


def read_held_out_batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield the dev and test reviews of corpus files: their sentences joined by a space."""
    for path in paths:
        with storage.open_bytes(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=["split", "sentences"]):
                chosen = pc.is_in(batch["split"].cast(pa.string()), pa.array(HELD_OUT_SPLITS))
                yield [" ".join(texts) for texts in batch["sentences"].filter(chosen).to_pylist()]


def write_held_out_index(
    counts: list[dict[str, Any]],
    prepared: str,
    index: str,
    near: Sequence[tuple[str, bytes]],
    earlier: Sequence[str],
) -> str:
    """Write the index of all dev and test reviews but the near-duplicates among them; return its
    folder.

    `near` are packed row numbers by unit, `earlier` the paths that `write_earlier_runs` returned.
    """
    if is_written(index):
        return index
    writer = IndexWriter()
    for path in earlier:
        add_part(writer, path, np.empty(0, ROW_NUMBER), 0)
    for unit in sorted(counts, key=lambda unit: unit["unit"]):
        packed = b"".join(rows for name, rows in near if name == unit["unit"])
        path = storage.join_path(prepared, f"{unit['unit']}.heldout")
        add_part(writer, path, np.frombuffer(packed, ROW_NUMBER), unit["dump"] + FIRST_DUMP)
    writer.save(index)
    return index


def add_part(writer: IndexWriter, path: str, dropped: np.ndarray, dump: int) -> None:
    """Add the runs in a file but those of dropped rows."""
    runs = np.frombuffer(storage.read_bytes(path), RUN)
    runs = runs[~np.isin(runs["text"], dropped)]
    texts, owners = np.unique(runs["text"], return_inverse=True)
    writer.add_runs(runs["run"], owners, len(texts), dump)
