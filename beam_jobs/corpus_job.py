"""Dump → corpus: every review that stays, clean, once, in sentences, on its side of the split.

    python -m beam_jobs.corpus_job --input 'dumps/*.json.gz' --output corpus

The graph has two passes over units of work (a range of a file). Text goes from file to file, never between workers;
what is grouped are counts and the row numbers of duplicates.

    units ─► prepare ─┬─► list ─┬─► train Punkt ───────────────┐
                      │         └─► buckets ─► find duplicates ┤
                      └────────────────────────────────────────┴─► write ─► sum up
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np

from beam_jobs import deduplication, engine, options, prepared, sentences, splits, storage, work_units, written
from beam_jobs.cleaning import Cleaning
from beam_jobs.command import UserMistake, main
from beam_jobs.formats import detection, fields
from beam_jobs.progress import progress

VERSION = 1


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser("corpus_job", description="Review dumps to a corpus of clean, distinct sentences.")
    option = parser.add_argument
    option("--input", nargs="+", required=True, help="files, folders or globs; gs://, s3://, https:// too")
    option("--output", required=True, help="folder of the corpus")
    option("--format", choices=detection.FORMATS, help="default: by content")
    option("--columns", help="text=NAME,stars=NAME,…: columns of a format of your own")
    option("--split", default=splits.DEFAULT, help="shares of the sides (default %(default)s)")
    option("--seed", type=int, default=0, help="of the split (default 0)")
    option("--min_words", type=int, default=1, help="shorter texts are dropped (default %(default)s)")
    option("--max_characters", type=int, default=20_000, help="longer texts are dropped (default %(default)s)")
    option("--max_record_bytes", type=int, default=16_000_000, help="longer records are rejected unread")
    option("--punkt_sample_bytes", type=int, default=1_000_000, help="text to train Punkt on (default %(default)s)")
    return parser.parse_known_args(argv)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    started, cpu = time.monotonic(), sum(os.times()[:4])
    args, flags = parse(argv)
    files = [
        work_units.look_at(path, args.format, fields.parse_overrides(args.columns))
        for path in storage.expand(args.input)
    ]
    units = work_units.plan(files)
    beam_options = options.resolve(flags, sum(file.plain_size for file in files))
    job = Job(args, files, units)
    job.clear_earlier()
    with progress(2 * len(units), "units", f"corpus ({options.describe(beam_options)})") as shown:
        engine.run_graph(beam_options, job.build, lambda: shown.update(*job.done()))
        shown.update(*job.done())
    result = job.result() | {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(sum(os.times()[:4]) - cpu, 3),
    }
    storage.write_bytes(storage.join(args.output, "corpus.json"), (json.dumps(result) + "\n").encode())
    storage.remove(job.work)
    return result


class Job:
    """The folders of a run and the graph that fills them."""

    def __init__(
        self, args: argparse.Namespace, files: list[work_units.DumpFile], units: list[work_units.Unit]
    ) -> None:
        self.files, self.units, self.output = files, units, args.output
        self.work = storage.join(args.output, f"_work-{fingerprint(args, files)}")
        prepared_folder, written_folder = storage.join(self.work, "prepared"), storage.join(self.work, "written")
        self.writing = written.Writing(prepared_folder, written_folder, args.output)
        self.preparation = prepared.Preparation(
            folder=self.writing.prepared,
            bounds=splits.parse_shares(args.split),
            seed=args.seed,
            cleaning=Cleaning(),
            min_words=args.min_words,
            max_characters=args.max_characters,
            longest_record=args.max_record_bytes,
            sample_share=min(1.0, args.punkt_sample_bytes / (1 + sum(file.plain_size for file in files) / 2)),
        )

    def clear_earlier(self) -> None:
        """Removes what an earlier, different job left in the output folder."""
        if storage.exists(self.work):
            return
        for name in storage.names_in(self.output):
            if name.startswith(("corpus-", "_work-")) or name in {"corpus.json", "punkt.json", "rejects"}:
                storage.remove(storage.join(self.output, name))

    def build(self, pipeline: beam.Pipeline) -> None:
        preparation, writing = self.preparation, self.writing
        counts = (
            pipeline
            | "List units" >> beam.Create(sorted(self.units, key=lambda unit: -unit.plain_size))
            | "Prepare units" >> beam.Map(lambda unit: (unit.index, prepared.prepare(unit, preparation)))
        )
        listed = counts | "Drop keys" >> beam.Values() | "Collect counts" >> beam.combiners.ToList()
        punkt = listed | "Train Punkt" >> beam.Map(train_punkt, writing)
        losers = (
            listed
            | "List buckets" >> beam.FlatMap(list_buckets)
            | "Spread buckets" >> beam.Reshuffle()
            | "Find duplicates" >> beam.FlatMap(find_duplicates, writing, beam.pvalue.AsSingleton(listed))
        )
        _ = (
            {"counts": counts, "losers": losers}
            | "Join duplicates with units" >> beam.CoGroupByKey()
            | "Write corpus"
            >> beam.ParDo(WriteCorpus(writing), beam.pvalue.AsSingleton(listed), beam.pvalue.AsSingleton(punkt))
        )

    def done(self) -> tuple[int]:
        folders = (self.writing.prepared, self.writing.written)
        return (sum(name.endswith(".json") for folder in folders for name in storage.names_in(folder)),)

    def result(self) -> dict[str, Any]:
        first = [read_json(self.writing.prepared, unit) for unit in range(len(self.units))]
        second = [read_json(self.writing.written, unit) for unit in range(len(self.units))]
        dropped = add([counts["dropped"] for counts in first] + [{"duplicate": sum(c["duplicates"] for c in second)}])
        result = {
            "read": sum(counts["read"] for counts in first),
            "kept": sum(counts["kept"] for counts in second),
            "dropped": {reason: n for reason, n in dropped.items() if n},
            "splits": add([c["splits"] for c in second]),
            "sentences": sum(counts["sentences"] for counts in second),
            "notes": add([counts["notes"] for counts in first]),
            "files": {file.path: sum(c["read"] for c in first if c["file"] == file.path) for file in self.files},
        }
        assert result["read"] == result["kept"] + sum(result["dropped"].values()), f"reviews lost: {result}"
        if not result["kept"]:
            raise UserMistake(
                f"no usable review in {len(self.files)} file(s): read {result['read']}, dropped {dropped}"
            )
        return result


def fingerprint(args: argparse.Namespace, files: list[work_units.DumpFile]) -> str:
    """Of everything that decides the bytes of the corpus: an interrupted run is continued only by the same job."""
    identity = [(f.path, f.size, None if storage.is_remote(f.path) else os.stat(f.path).st_mtime_ns) for f in files]
    settings = {name: value for name, value in vars(args).items() if name not in {"input", "output"}}
    return hashlib.sha256(json.dumps([VERSION, identity, settings], sort_keys=True).encode()).hexdigest()[:16]


def read_json(folder: str, unit: int) -> dict[str, Any]:
    return json.loads(storage.read_bytes(storage.join(folder, f"{unit:05d}.json")))


def add(counts: list[dict[str, int]]) -> dict[str, int]:
    names = sorted({name for c in counts for name in c})
    return {name: sum(c.get(name, 0) for c in counts) for name in names}


def train_punkt(counts: list[dict[str, Any]], writing: written.Writing) -> str:
    """Trains on the units' samples, in the order of the texts' hashes, each text once. Returns the parameters."""
    path = storage.join(writing.output, "punkt.json")
    texts: dict[str, str] = {}
    for c in counts:
        texts |= dict(json.loads(storage.read_bytes(storage.join(writing.prepared, f"{c['unit']:05d}.sample"))))
    parameters = sentences.to_json(sentences.train([texts[key] for key in sorted(texts)]))
    storage.write_bytes(path, parameters.encode())
    return parameters


def list_buckets(counts: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    of = deduplication.buckets(sum(c["prepared"] for c in counts))
    return ((bucket, of) for bucket in range(of))


def find_duplicates(
    bucket: tuple[int, int], writing: written.Writing, counts: list[dict[str, Any]]
) -> Iterator[tuple[int, bytes]]:
    units = sorted(c["unit"] for c in counts)
    parts = [
        np.array(deduplication.stretch(np.load(Path(writing.prepared, f"{unit:05d}.npy"), mmap_mode="r"), *bucket))
        for unit in units
    ]
    for unit, rows in deduplication.losers(units, parts).items():
        yield unit, rows.astype("<u4").tobytes()


class WriteCorpus(beam.DoFn):
    """Builds the splitter once a worker: its parameters are some megabytes."""

    def __init__(self, writing: written.Writing) -> None:
        self.writing = writing
        self.splitter: sentences.SentenceSplitter | None = None

    def process(
        self, element: tuple[int, dict[str, Iterable[Any]]], listed: list[dict[str, Any]], punkt: str
    ) -> Iterator[dict[str, Any]]:
        self.splitter = self.splitter or sentences.SentenceSplitter(sentences.from_json(punkt))
        unit, joined = element
        (counts,) = joined["counts"]
        losers = np.frombuffer(b"".join(joined["losers"]), dtype="<u4")
        before = sum(c["lines"] for c in listed if c["file"] == counts["file"] and c["unit"] < unit)
        yield written.write(unit, counts["source"], losers, before, self.writing, self.splitter)


if __name__ == "__main__":
    main(run)
