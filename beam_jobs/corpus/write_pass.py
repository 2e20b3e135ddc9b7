"""Second pass over a unit: drops the duplicates, splits sentences, writes a file of the corpus."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_jobs.corpus import parquet_files
from beam_jobs.corpus.folders import Folders
from beam_jobs.deduplication.exact_duplicates import ROW_NUMBER
from beam_jobs.deduplication.held_out import FIRST_DUMP, mark_held_out
from beam_jobs.deduplication.withholding import load_index
from beam_jobs.job import storage
from beam_jobs.job.command import give_memory_back
from beam_jobs.text.sentence_batches import BatchSplitter
from beam_jobs.text.sentences import decode_punkt
from beam_jobs.text.splits import SPLITS

SEARCHED_BATCHES = 4
"""Batches (prepare_pass.BATCH_REVIEWS) that are looked up at once among the held-out reviews."""


class WriteUnits(beam.DoFn):
    """Writes units, with one sentence splitter for all units of a worker.

    Its parameters are some megabytes, and it remembers the contexts it has decided.
    """

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.splitter: BatchSplitter | None = None

    def process(
        self,
        element: tuple[str, dict[str, Iterable[Any]]],
        all_counts: list[dict[str, Any]],
        punkt: str,
        held_out: str,
    ) -> Iterator[dict[str, Any]]:
        """Yield the counts of a unit; `held_out` is the folder of the index of dev and test."""
        if self.splitter is None:
            self.splitter = BatchSplitter(decode_punkt(punkt))
        _, joined = element
        give_memory_back()
        (counts,) = joined["counts"]
        dropped = DroppedRows(*(unpack_rows(joined.get(k, [])) for k in ("exact", "near", "seen")))
        lines_before = sum(
            other["lines"]
            for other in all_counts
            if other["file"] == counts["file"] and other["unit"] < counts["unit"]
        )
        yield write_unit(counts, dropped, lines_before, self.folders, self.splitter, held_out)


def unpack_rows(packed: Iterable[bytes]) -> np.ndarray:
    """Return packed row numbers, sorted, each once."""
    return np.unique(np.frombuffer(b"".join(packed), dtype=ROW_NUMBER))


@dataclass(frozen=True)
class DroppedRows:
    """Row numbers of a unit that do not stay."""

    exact: np.ndarray
    near: np.ndarray
    seen: np.ndarray
    """Rows whose text an earlier corpus has."""

    @property
    def all(self) -> np.ndarray:
        return np.union1d(self.seen, np.union1d(self.exact, self.near)).astype(np.int64)


def write_unit(
    prepared: dict[str, Any],
    dropped: DroppedRows,
    lines_before: int,
    folders: Folders,
    splitter: BatchSplitter,
    held_out: str = "",
) -> dict[str, Any]:
    """Write a unit unless an earlier run has; return its counts.

    `prepared` are the counts of the first pass, `lines_before` the lines of its file before it,
    `held_out` is the folder of the index of dev and test reviews, if there is one.
    """
    unit = prepared["unit"]
    marker = storage.join_path(folders.written, f"{unit}.json")
    if storage.exists(marker):
        return json.loads(storage.read_bytes(marker))
    tables = UnitTables(prepared, dropped.all, splitter, held_out)
    with storage.open_bytes(storage.join_path(folders.prepared, f"{unit}.arrow")) as stream:
        rows = parquet_files.write_tables(
            storage.join_path(folders.output, f"corpus-{unit}.parquet"),
            parquet_files.CORPUS_SCHEMA,
            tables.read_tables(pa.ipc.open_file(stream)),
        )
    write_rejects(unit, lines_before, folders)
    counts: dict[str, Any] = {
        "unit": unit,
        "kept": rows,
        "duplicate": len(dropped.exact),
        "seen before": len(dropped.seen),
        "near duplicate": len(dropped.all) - len(dropped.exact) - len(dropped.seen),
        "withheld (own)": tables.withheld,
        "sentences": tables.sentences,
        "splits": dict(sorted(tables.splits.items())),
        "stars": dict(sorted(tables.stars.items())),
    }
    storage.write_bytes(marker, json.dumps(counts).encode())
    return counts


def write_rejects(unit: str, lines_before: int, folders: Folders) -> None:
    """Write the rejects of a unit, if any, with lines counted from the beginning of the file."""
    rejects = storage.read_bytes(storage.join_path(folders.prepared, f"{unit}.rejects"))
    if rejects:
        path = storage.join_path(folders.output, "rejects", f"{unit}.jsonl")
        storage.write_bytes(path, renumber_rejects(rejects, lines_before))


def renumber_rejects(rejects: bytes, lines_before: int) -> bytes:
    entries = [json.loads(line) for line in rejects.splitlines()]
    return "".join(
        json.dumps(entry | {"line": entry["line"] + lines_before}) + "\n" for entry in entries
    ).encode()


class UnitTables:
    """The rows of a unit that stay, batch by batch, and their counts."""

    def __init__(
        self,
        prepared: dict[str, Any],
        dropped: np.ndarray,
        splitter: BatchSplitter,
        held_out: str,
    ) -> None:
        self.source, self.dropped, self.splitter = prepared["source"], dropped, splitter
        self.dump = prepared["dump"] + FIRST_DUMP
        self.index = load_index(held_out) if held_out else None
        self.splits: Counter[str] = Counter()
        self.stars: Counter[str] = Counter()
        self.sentences = self.withheld = 0

    def read_tables(self, reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.Table]:
        batches = self._read_batches(reader)
        while found := list(itertools.islice(batches, SEARCHED_BATCHES)):
            for batch in self._drop_withheld(found):
                if batch.num_rows:
                    yield self._build_table(batch)

    def _read_batches(self, reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a unit without the rows that do not stay."""
        start = 0
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            stays = np.ones(batch.num_rows, dtype=bool)
            within = (self.dropped >= start) & (self.dropped < start + batch.num_rows)
            stays[self.dropped[within] - start] = False
            start += batch.num_rows
            yield batch.filter(pa.array(stays))

    def _drop_withheld(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the reviews that are held out, or do not nearly repeat one that is."""
        if self.index is None or self.index.is_empty:
            yield from batches
            return
        trained = [np.flatnonzero(~mark_held_out(b.column("split").to_numpy())) for b in batches]
        texts = [
            text
            for batch, rows in zip(batches, trained, strict=True)
            for text in batch.column("text").take(pa.array(rows)).to_pylist()
        ]
        near = self.index.find_near_texts(texts, self.dump)
        for batch, rows in zip(batches, trained, strict=True):
            stays = np.ones(batch.num_rows, dtype=bool)
            stays[rows], near = ~near[: len(rows)], near[len(rows) :]
            self.withheld += int((~stays).sum())
            yield batch.filter(pa.array(stays))

    def _build_table(self, batch: pa.RecordBatch) -> pa.Table:
        sides = batch.column("split").to_numpy(zero_copy_only=False)
        for side, count in zip(*np.unique(sides, return_counts=True), strict=True):
            self.splits[SPLITS[side]] += int(count)
        stars = batch.column("stars").fill_null(0).to_numpy(zero_copy_only=False)
        for code, count in zip(*np.unique(sides * 8 + stars, return_counts=True), strict=True):
            self.stars[f"{SPLITS[code // 8]}.{code % 8 or 'none'}"] += int(count)
        columns = {n: batch.column(n) for n in ("review_id", "text_hash", "stars", "verified")}
        columns["source"] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(batch.num_rows, np.int32)), [self.source]
        )
        columns["split"] = pa.DictionaryArray.from_arrays(batch.column("split"), list(SPLITS))
        columns["sentences"] = self.splitter.split(batch.column("text"))
        self.sentences += len(columns["sentences"].values)
        return pa.Table.from_pydict(columns, schema=parquet_files.CORPUS_SCHEMA)
