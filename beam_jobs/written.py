"""Second pass over a unit: without the duplicates, in sentences, as one Parquet file of the corpus."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from beam_jobs import parquet_shards, storage
from beam_jobs.splits import SPLITS

if TYPE_CHECKING:
    from beam_jobs.sentences import SentenceSplitter


@dataclass(frozen=True)
class Writing:
    """Everything the second pass depends on beside the unit."""

    prepared: str
    written: str
    output: str


@dataclass(frozen=True)
class Gone:
    """Row numbers of a unit that do not stay."""

    exact: np.ndarray
    near: np.ndarray
    seen: np.ndarray  # in an earlier corpus

    @property
    def all(self) -> np.ndarray:
        return np.union1d(self.seen, np.union1d(self.exact, self.near)).astype(np.int64)


def write(
    unit: str, source: str, gone: Gone, lines_before: int, writing: Writing, splitter: "SentenceSplitter"
) -> dict[str, Any]:
    """Does a unit unless an earlier run has done it; returns its counts."""
    marker = storage.join(writing.written, f"{unit}.json")
    if storage.exists(marker):
        return json.loads(storage.read_bytes(marker))
    tables = Tables(source, gone.all, splitter)
    prepared = storage.join(writing.prepared, unit)
    with storage.open_bytes(f"{prepared}.arrow") as stream:
        rows = parquet_shards.write_tables(
            storage.join(writing.output, f"corpus-{unit}.parquet"),
            parquet_shards.CORPUS_SCHEMA,
            tables.read(pa.ipc.open_file(stream)),
        )
    rejects = storage.read_bytes(f"{prepared}.rejects")
    if rejects:
        path = storage.join(writing.output, "rejects", f"{unit}.jsonl")
        storage.write_bytes(path, numbered(rejects, lines_before))
    counts: dict[str, Any] = {"unit": unit, "kept": rows, "duplicate": len(gone.exact), "seen before": len(gone.seen)}
    counts["near duplicate"] = len(gone.all) - len(gone.exact) - len(gone.seen)
    counts |= {"sentences": tables.sentences, "splits": dict(sorted(tables.splits.items()))}
    storage.write_bytes(marker, json.dumps(counts).encode())
    return counts


class Tables:
    """The rows of a unit that stay, batch by batch, and their counts."""

    def __init__(self, source: str, losers: np.ndarray, splitter: "SentenceSplitter") -> None:
        self.source, self.losers, self.splitter = source, losers, splitter
        self.splits: Counter[str] = Counter()
        self.sentences = 0

    def read(self, reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.Table]:
        start = 0
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            stays = np.ones(batch.num_rows, dtype=bool)
            here = self.losers[(self.losers >= start) & (self.losers < start + batch.num_rows)]
            stays[here - start] = False
            start += batch.num_rows
            if stays.any():
                yield self.table(batch.filter(pa.array(stays)))

    def table(self, batch: pa.RecordBatch) -> pa.Table:
        sides = batch.column("split").to_numpy(zero_copy_only=False)
        for side, count in zip(*np.unique(sides, return_counts=True), strict=True):
            self.splits[SPLITS[side]] += int(count)
        columns = {name: batch.column(name) for name in ("review_id", "text_hash", "stars", "verified")}
        rows = batch.num_rows
        columns["source"] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [self.source])
        columns["split"] = pa.DictionaryArray.from_arrays(batch.column("split"), list(SPLITS))
        columns["sentences"] = self.in_sentences(batch.column("text").to_pylist())
        return pa.Table.from_pydict(columns, schema=parquet_shards.CORPUS_SCHEMA)

    def in_sentences(self, texts: list[str]) -> pa.ListArray:
        flat: list[str] = []
        offsets = np.zeros(len(texts) + 1, dtype=np.int32)
        for i, text in enumerate(texts):
            flat += self.splitter.split(text)
            offsets[i + 1] = len(flat)
        self.sentences += len(flat)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, pa.string()))


def numbered(rejects: bytes, lines_before: int) -> bytes:
    """Rejects of a unit with their lines counted from the beginning of the file."""
    entries = [json.loads(line) for line in rejects.splitlines()]
    return "".join(json.dumps(e | {"line": e["line"] + lines_before}) + "\n" for e in entries).encode()
