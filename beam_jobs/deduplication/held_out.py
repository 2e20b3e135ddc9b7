"""Holds out the dev and test reviews of a corpus, so that no near copy of one is trained on.

Their runs are hashed by whoever has their text, the first pass or a reader of earlier corpora,
which leaves a file of them: RUN by run, with the number of a review in this file, then TEXT of each
review. The index is written in parts by the first bits of the runs. A review is compared with the
held-out reviews of its own dump and of earlier ones: a dump that comes later changes nothing in
what the earlier ones left.
"""

import collections
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs.deduplication import index_files
from beam_jobs.deduplication.exact_duplicates import ROW_NUMBER, locate_bucket
from beam_jobs.deduplication.index_files import RUN, RunSorter
from beam_jobs.deduplication.withholding import list_distinct_runs
from beam_jobs.job import storage
from beam_jobs.text.splits import SPLITS
from beam_jobs.text.word_runs import BATCH_TEXTS, split_words

HELD_OUT_SPLITS = ("dev", "test")
"""The splits that models are chosen and judged by."""
FIRST_DUMP = 1
"""Number of the job's first dump in the index; earlier corpora are 0."""
TEXT = np.dtype([("row", "<u4"), ("runs", "<u4")])
"""The row number of a held-out review in its unit, and how many distinct runs it has."""
MOST_PARTS, PART_RUNS = 16, 1 << 24
"""Parts of an index, a power of two, each of so many runs at least: sorting them takes 4 s."""
HeldOutFile = dict[str, Any]
"""Where the runs of each of MOST_PARTS begin in a file, and their end ("starts"), and how many
reviews it has ("texts"). In the index there are also its "path", "unit" and "dump"."""


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


def pack_runs(runs: np.ndarray) -> tuple[bytes, HeldOutFile]:
    """Return the bytes of a file of these runs (RUN, by row number), and what is where in it."""
    rows, owners, counts = np.unique(runs["text"], return_inverse=True, return_counts=True)
    texts = np.empty(len(rows), TEXT)
    texts["row"], texts["runs"] = rows, counts
    order = np.argsort(runs["run"], kind="stable")
    packed = np.empty(len(runs), RUN)
    packed["run"], packed["text"] = runs["run"][order], owners[order]
    firsts = np.arange(MOST_PARTS, dtype=np.uint64)
    starts = np.searchsorted(packed["run"] >> index_files.compute_shift(MOST_PARTS), firsts)
    held_out = {"starts": [*starts.tolist(), len(packed)], "texts": len(texts)}
    return packed.tobytes() + texts.tobytes(), held_out


def write_earlier_runs(run: tuple[int, tuple[str, ...]], folder: str) -> HeldOutFile:
    """Write the runs of earlier corpora's dev and test reviews, once; return where they are."""
    number, paths = run
    path = storage.join_path(folder, f"{number:05d}.heldout")
    marker = f"{path}.json"
    if not storage.exists(marker):
        parts, texts = [np.empty(0, RUN)], 0
        for batch in read_held_out_batches(paths):
            parts.append(hash_runs(batch, np.arange(texts, texts + len(batch))))
            texts += len(batch)
        packed, held_out = pack_runs(np.concatenate(parts))
        storage.write_bytes(path, packed)
        storage.write_json(marker, {"path": path, "unit": "", "dump": 0, **held_out})
    return json.loads(storage.read_bytes(marker))


def read_held_out_batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield the dev and test reviews of corpus files: their sentences joined by a space."""
    for path in paths:
        with storage.open_bytes(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=["split", "sentences"]):
                chosen = pc.is_in(batch["split"].cast(pa.string()), pa.array(HELD_OUT_SPLITS))
                yield [" ".join(texts) for texts in batch["sentences"].filter(chosen).to_pylist()]


def list_held_out_files(
    counts: list[dict[str, Any]], prepared: str, earlier: Sequence[HeldOutFile]
) -> list[HeldOutFile]:
    """Return the files of earlier corpora and of the units, in the order of their texts' numbers;
    `earlier` is what `write_earlier_runs` returned.
    """
    units = [
        {
            "path": storage.join_path(prepared, f"{unit['unit']}.heldout"),
            "unit": unit["unit"],
            "dump": unit["dump"] + FIRST_DUMP,
            **unit["held_out"],
        }
        for unit in sorted(counts, key=lambda unit: unit["unit"])
    ]
    return [*sorted(earlier, key=lambda file: file["path"]), *units]


def list_index_parts(
    counts: list[dict[str, Any]], earlier: Sequence[HeldOutFile]
) -> Iterator[tuple[int, int]]:
    """Yield the parts of the index, and how many there are."""
    runs = sum(file["starts"][-1] for file in [*earlier, *(unit["held_out"] for unit in counts)])
    of = min(MOST_PARTS, 1 << (runs // PART_RUNS).bit_length())
    return ((part, of) for part in range(of))


def write_index_part(
    part: tuple[int, int],
    prepared: str,
    index: str,
    counts: list[dict[str, Any]],
    near: Sequence[tuple[str, bytes]],
    earlier: Sequence[HeldOutFile],
) -> int:
    """Write one part of the index of all dev and test reviews but the near-duplicates among them;
    return its number. The first part writes what the index says of texts, too.

    `near` are packed row numbers by unit.
    """
    number, of = part
    if index_files.is_part_written(index, number) or index_files.is_written(index):
        return number
    files, texts = list_held_out_files(counts, prepared, earlier), 0
    dropped: dict[str, bytes] = collections.defaultdict(bytes)
    for unit, packed in near:
        dropped[unit] += packed
    runs = RunSorter(number, of)
    for file in files:
        rows = read_runs(file, number, of)
        if file["unit"] in dropped:
            numbers = np.frombuffer(dropped[file["unit"]], ROW_NUMBER)
            rows = rows[~np.isin(read_texts(file)["row"], numbers)[rows["text"]]]
        rows["text"] += texts
        runs.add_rows(rows)
        texts += file["texts"]
    if number == 0:
        sizes = [np.empty(0, np.uint32), *(read_texts(file)["runs"] for file in files)]
        dumps = np.repeat([file["dump"] for file in files], [file["texts"] for file in files])
        index_files.save_text_columns(index, np.empty(0), np.concatenate(sizes), dumps)
    runs.save(index, sum(file["starts"][-1] for file in files))
    return number


def read_runs(file: HeldOutFile, part: int, of: int) -> np.ndarray:
    """Return the runs of one part from a file."""
    start, stop = locate_bucket(file["starts"], part, of)
    size = RUN.itemsize
    packed = storage.read_range(file["path"], start * size, stop * size)
    return np.frombuffer(bytearray(packed), RUN)


def read_texts(file: HeldOutFile) -> np.ndarray:
    """Return TEXT of each review of a file."""
    start = file["starts"][-1] * RUN.itemsize
    stop = start + file["texts"] * TEXT.itemsize
    return np.frombuffer(storage.read_range(file["path"], start, stop), TEXT)


def finish_index(counts: list[dict[str, Any]], index: str, parts: Sequence[int]) -> str:
    """Join the parts of an index and return its folder; where it is in a store, each worker joins
    what it fetches.
    """
    if not (storage.is_remote(index) or index_files.is_written(index)):
        index_files.join_parts(index, index)
        index_files.finish_index(index, index)
        index_files.remove_parts(index)
    return index
