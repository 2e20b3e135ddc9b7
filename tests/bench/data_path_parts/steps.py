"""What each step of our path costs, and what the least it could cost is: one run in one process,
timed from inside.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs import corpus_job
from beam_jobs.corpus import parquet_files, prepare_pass
from beam_jobs.deduplication import duplicate_buckets, exact_duplicates
from beam_jobs.packing import corpus_units, packing, tokenization
from beam_jobs.reading import detection
from beam_jobs.reading.compression import PlainStream, open_uncompressed
from beam_jobs.text import sentence_batches
from tests.bench.data_path_parts import paths

STEPS: list[tuple[str, Any, str]] = [
    ("unpack", PlainStream, "read"),
    ("parse records", detection, "read_records"),
    ("clean", prepare_pass, "clean_text"),
    ("mask personal data", prepare_pass.UnitReader, "mask_personal_data"),
    ("hash", prepare_pass.Batch, "compute_hashes"),
    ("texts to Arrow", prepare_pass.Batch, "to_table"),
    ("duplicates: pack", exact_duplicates, "pack_rows"),
    ("duplicates: find", duplicate_buckets, "find_exact_duplicates"),
    ("train Punkt", corpus_job, "write_punkt"),
    ("sentences", sentence_batches.BatchSplitter, "split"),
    ("write Parquet (both jobs)", parquet_files.pq.ParquetWriter, "write_table"),
    ("read corpus", corpus_units.CorpusUnit, "read_windows"),
    ("token ids", tokenization.WordIds, "encode"),
    ("fill sequences", packing, "fill_sequences"),
    ("lay out sequences", packing, "build_table"),
]


class Clock:
    """CPU time by step; a step inside another counts for itself only."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._running: list[str] = []
        self._since = time.process_time()

    def turn(self) -> None:
        now = time.process_time()
        self.seconds[self._running[-1] if self._running else "Beam, files, the rest"] += (
            now - self._since
        )
        self._since = now

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.turn()
            self._running.append(name)
            try:
                result = function(*args, **kwargs)
            finally:
                self.turn()
                self._running.pop()
            return self.each(name, result) if isinstance(result, Iterator) else result

        return call

    def each(self, name: str, items: Iterator[Any]) -> Iterator[Any]:
        step = self.timed(name, lambda: next(items, self))
        while (item := step()) is not self:
            yield item


def by_step(dump: Path, vocabulary: Path, output: Path, report: Path) -> None:
    """Runs both jobs in this process; writes {step: CPU seconds}."""
    clock = Clock()
    patches = [
        patch.object(owner, name, clock.timed(step, getattr(owner, name)))
        for step, owner, name in STEPS
    ]
    for one in patches:
        one.start()
    clock.turn()
    clock.seconds.clear()
    paths.with_beam(dump, vocabulary, output, workers=1)
    clock.turn()
    for one in patches:
        one.stop()
    report.write_text(
        json.dumps(
            {
                name: clock.seconds[name]
                for name in [s[0] for s in STEPS] + ["Beam, files, the rest"]
            }
        )
    )


def floors(dump: Path, text_field: str, corpus: Path, report: Path) -> None:
    """CPU seconds of the least a step must do, measured alone: {step: [seconds, what was
    measured]}.
    """
    files = sorted(dump.iterdir())
    lines = b"".join(unpacked(file) for file in files).splitlines()
    texts = [text for line in lines if isinstance(text := parsed(line).get(text_field), str)]
    array = pa.array(texts)
    least: dict[str, tuple[str, Callable[[], Any]]] = {
        "unpack": (
            "inflating alone, by ISA-L where it is installed",
            lambda: [unpacked(file) for file in files],
        ),
        "parse records": ("orjson.loads of each line", lambda: [parsed(line) for line in lines]),
        "clean": (
            "looking at each character once",
            lambda: [t.isascii() and t.isprintable() for t in texts],
        ),
        "sentences": ("finding the stops", lambda: sentence_batches.Texts(array).find_stops()),
        "read corpus": (
            "the column alone",
            lambda: [read_column(file) for file in sorted(corpus.glob("*.parquet"))],
        ),
        "token ids": ("cutting at spaces, numbering the words", lambda: number_words(array)),
    }
    found = {}
    for step, (what, function) in least.items():
        before = time.process_time()
        function()
        found[step] = [time.process_time() - before, what]
    report.write_text(json.dumps(found))


def unpacked(file: Path) -> bytes:
    with open_uncompressed(str(file), "gz") as stream:
        return b"".join(iter(stream.read, b""))


def parsed(line: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read_column(file: Path) -> pa.Table:
    return pq.read_table(file, columns=["sentences"])


def number_words(texts: pa.Array) -> pa.Array:
    return pc.split_pattern(texts, " ").flatten().dictionary_encode()
