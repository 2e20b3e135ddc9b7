"""Second pass over a unit: drops the duplicates, splits sentences, writes a file of the corpus."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_jobs.core import storage
from beam_jobs.core.command import give_memory_back
from beam_jobs.corpus import parquet_files
from beam_jobs.corpus.folders import Folders
from beam_jobs.deduplication.exact import ROW_NUMBER
from beam_jobs.deduplication.held_out import UnitMatches
from beam_jobs.text.sentences import SentenceSplitter, decode_punkt
from beam_jobs.text.splits import SPLITS


class WriteUnits(beam.DoFn):
    """Writes units, with one sentence splitter for all units of a worker.

    Its parameters are some megabytes, and it remembers the contexts it has decided.
    """

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.splitter: SentenceSplitter | None = None

    def process(
        self,
        element: tuple[str, dict[str, Iterable[Any]]],
        all_counts: list[dict[str, Any]],
        punkt: str,
        matches: Sequence[str],
    ) -> Iterator[dict[str, Any]]:
        """Yield the counts of a unit; `matches` are the paths of `write_matches`."""
        if self.splitter is None:
            self.splitter = SentenceSplitter(decode_punkt(punkt))
        _, joined = element
        give_memory_back()
        (counts,) = joined["counts"]
        dropped = DroppedRows(*(unpack_rows(joined.get(k, [])) for k in ("exact", "near", "seen")))
        near = UnitMatches(counts["unit"], all_counts, matches)
        lines_before = sum(
            other["lines"]
            for other in all_counts
            if other["file"] == counts["file"] and other["unit"] < counts["unit"]
        )
        yield write_unit(counts, dropped, lines_before, self.folders, self.splitter, near)


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
    splitter: SentenceSplitter,
    matches: UnitMatches,
) -> dict[str, Any]:
    """Write a unit unless an earlier run has; return its counts.

    `prepared` are the counts of the first pass, `lines_before` the lines of its file before it,
    `matches` what its reviews share with those that are held out.
    """
    unit = prepared["unit"]
    marker = storage.join_path(folders.written, f"{unit}.json")
    if storage.exists(marker):
        return json.loads(storage.read_bytes(marker))
    tables = UnitTables(prepared, dropped.all, splitter, matches)
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
        splitter: SentenceSplitter,
        matches: UnitMatches,
    ) -> None:
        self.source, self.dropped, self.splitter = prepared["source"], dropped, splitter
        self.matches = matches
        self.splits: Counter[str] = Counter()
        self.stars: Counter[str] = Counter()
        self.sentences = self.withheld = 0

    def read_tables(self, reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.Table]:
        start = 0
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            stays = self._select_rows(start, batch.column("runs").to_numpy())
            start += batch.num_rows
            if stays.any():
                yield self._build_table(batch.filter(pa.array(stays)))

    def _select_rows(self, start: int, runs: np.ndarray) -> np.ndarray:
        """Return which rows of a batch stay: neither dropped nor nearly a held-out review."""
        stays = np.ones(len(runs), dtype=bool)
        within = (self.dropped >= start) & (self.dropped < start + len(runs))
        stays[self.dropped[within] - start] = False
        near = stays & self.matches.mark_near(start, runs)
        self.withheld += int(near.sum())
        return stays & ~near

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
