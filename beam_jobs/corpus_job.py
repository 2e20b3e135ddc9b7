"""Dump → corpus: every review that stays, clean, once, in sentences, on its side of the split.

    python -m beam_jobs.corpus_job --input 'dumps/*.json.gz' --output corpus

The graph has two passes over units of work, stretches of the dump's files. Text goes from file to file, never between
workers; what is grouped are counts and the row numbers of duplicates.

    files ─► cut ─► prepare ─┬─► list ─┬─► train Punkt ─────────────────┐
                             │         ├─► buckets ─► find duplicates ──┤
                             │         └─► bands ─► find near-duplicates┤
                             └──────────────────────────────────────────┴─► write

`--seen` names corpora of earlier dumps: what they have is left out (seen.py). An interrupted job leaves its work
folder; the same command finds in it what is done and continues.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np

from beam_jobs import (
    corpus_options,
    deduplication,
    duplicate_search,
    engine,
    evaluation_texts,
    options,
    prepared,
    seen,
    storage,
    unit_counts,
    withholding,
    work_units,
    written,
)
from beam_jobs.command import UserMistake, main
from beam_jobs.corpus_options import UNIT_NAME, Folders
from beam_jobs.progress import Progress, progress

if TYPE_CHECKING:
    from beam_jobs.sentences import SentenceSplitter


def run(argv: list[str] | None = None) -> dict[str, Any]:
    started, cpu = time.monotonic(), sum(os.times()[:4])
    args, flags = corpus_options.parse(argv)
    files = corpus_options.dump_files(args)
    storage.check_apart([file.path for file in files], args.output)
    storage.check_writable(args.output)
    beam_options = options.resolve(flags, sum(file.plain_size for file in files))
    withheld = storage.expand(args.withhold, "--withhold") if args.withhold else []
    agreed = corpus_options.agreed(args, withheld)
    earlier = seen.look_at(args.seen, agreed, args.output, args.punkt)
    numbers = {file.path: file.dump for file in files}
    identity = [
        *((*storage.identity_of(path), dump) for path, dump in numbers.items()),
        *map(storage.identity_of, withheld),
    ]
    folders = Folders(args.output, storage.join(args.output, f"_work-{fingerprint(args, [*identity, earlier])}"))
    job = Job(files, corpus_options.preparation(args, files, folders), folders, earlier, args.punkt or earlier.punkt)
    folders.clear_earlier(rf"corpus-{UNIT_NAME}\.parquet|(corpus|punkt)\.json")
    if withheld and not storage.exists(folders.withheld):
        texts = (text for path in withheld for text in evaluation_texts.texts_of(path))
        withholding.build(texts).save(folders.withheld)
    with progress(job.expected_units() * 2, "units", f"corpus ({options.describe(beam_options)})") as shown:
        engine.run_graph(beam_options, job.build, lambda: job.show(shown))
        if options.only_stages(beam_options):
            return {"staged": options.describe(beam_options)}
        job.show(shown)
    result = job.result() | ({"withheld_files": withheld} if withheld else {}) | {"agreed": agreed}
    result |= {"seconds": round(time.monotonic() - started, 3), "cpu_seconds": round(sum(os.times()[:4]) - cpu, 3)}
    storage.write_json(storage.join(args.output, "corpus.json"), result)
    storage.remove(folders.work)
    return result


GONE = ("seen before", "duplicate", "near duplicate")  # found out by the search for duplicates


class Job:
    """The graph, and what it leaves."""

    def __init__(
        self,
        files: list[work_units.DumpFile],
        preparation: prepared.Preparation,
        folders: Folders,
        earlier: seen.Seen,
        punkt: str | None,
    ) -> None:
        self.files, self.preparation, self.folders, self.punkt = files, preparation, folders, punkt
        self.earlier = earlier
        self.unit_bytes = work_units.unit_bytes(files)
        self._read: dict[str, int] = {}
        self._started = time.monotonic()

    def build(self, pipeline: beam.Pipeline) -> None:
        preparation, folders, size = self.preparation, self.folders, self.unit_bytes
        counts = (
            pipeline
            | "List files" >> beam.Create(engine.largest_first(self.files, lambda file: file.plain_size))
            | "Cut files" >> beam.FlatMap(work_units.cut, size, folders.cuts)
            | "List units" >> beam.combiners.ToList()
            | "Largest units first" >> beam.FlatMap(engine.largest_first, lambda unit: unit.plain_size)
            | "Spread units" >> beam.Reshuffle()
            | "Prepare units" >> beam.Map(prepared.prepare, preparation)
        )
        listed = counts | "Collect counts" >> beam.combiners.ToList()
        all_counts = beam.pvalue.AsSingleton(listed)
        punkt = listed | "Train Punkt" >> beam.Map(train_punkt, folders, self.punkt)
        found = (
            listed
            | "List buckets" >> beam.FlatMap(duplicate_search.list_buckets, self.earlier.reviews)
            | "Spread buckets" >> beam.Reshuffle()
            | "Find duplicates"
            >> beam.FlatMap(
                duplicate_search.exact, folders.prepared, all_counts, self.packed_seen(pipeline)
            ).with_outputs(duplicate_search.SEEN, main="copies")
        )
        named = (
            listed
            | "Most reviews first" >> beam.FlatMap(engine.largest_first, lambda c: c["prepared"])
            | "Name counts" >> beam.Map(lambda c: (c["unit"], c))
        )
        joined = {"counts": named, "exact": found.copies, "seen": found[duplicate_search.SEEN]}
        if preparation.near_duplicates:
            joined["near"] = (
                listed
                | "List bands" >> beam.FlatMap(duplicate_search.list_bands, preparation.near_duplicates)
                | "Spread bands" >> beam.Reshuffle()
                | "Find near-duplicates"
                >> beam.FlatMap(duplicate_search.near, folders.prepared, preparation.near_duplicates, all_counts)
            )
        _ = (
            joined
            | "Join duplicates with units" >> beam.CoGroupByKey()
            | "Write corpus" >> beam.ParDo(WriteCorpus(folders), all_counts, beam.pvalue.AsSingleton(punkt))
        )

    def packed_seen(self, pipeline: beam.Pipeline) -> Any:
        """Hashes of the earlier corpora's texts, packed by the workers, as a side input."""
        if not self.earlier.runs:
            return ()
        packs = (
            pipeline
            | "List earlier corpora" >> beam.Create(list(enumerate(self.earlier.runs)))
            | "Pack seen texts" >> beam.Map(seen.pack, self.folders.seen)
        )
        return beam.pvalue.AsList(packs)

    def expected_units(self) -> int:
        return sum(work_units.expected(file, self.unit_bytes) for file in self.files)

    def show(self, shown: Progress) -> None:
        """Units that are done, in both passes, and reviews read so far."""
        prepared_names = unit_counts.names(self.folders.prepared)
        done = len(prepared_names) + len(unit_counts.names(self.folders.written))
        for name in prepared_names:
            if name not in self._read:
                self._read[name] = unit_counts.read(self.folders.prepared, name)["read"]
        shown.total = max(shown.total, done)
        reviews = sum(self._read.values())
        shown.update(done, reviews=reviews, reviews_per_second=round(reviews / (time.monotonic() - self._started)))

    def result(self) -> dict[str, Any]:
        first, second = unit_counts.read_all(self.folders.prepared), unit_counts.read_all(self.folders.written)
        assert len(first) == len(second), f"{len(first)} units prepared, {len(second)} written"
        gone = [{reason: counts[reason] for reason in GONE} for counts in second]
        dropped = {reason: n for reason, n in unit_counts.total([c["dropped"] for c in first] + gone).items() if n}
        read, kept = sum(counts["read"] for counts in first), sum(counts["kept"] for counts in second)
        assert read == kept + sum(dropped.values()), f"reviews lost: read {read}, kept {kept}, dropped {dropped}"
        if not kept and not dropped.get("seen before"):
            raise UserMistake(f"no usable review in the dump: read {read}, dropped {dropped}")
        return {
            "read": read,
            "kept": kept,
            "dropped": dropped,
            "splits": unit_counts.total([counts["splits"] for counts in second]),
            "sentences": sum(counts["sentences"] for counts in second),
            "notes": unit_counts.total([counts["notes"] for counts in first]),
            "files": {file.name: file_counts(first, second, file.name) for file in self.files},
            "units": len(first),
            "seen": {"corpora": list(self.earlier.folders), "reviews": self.earlier.reviews},
        }


def file_counts(first: list[dict[str, Any]], second: list[dict[str, Any]], name: str) -> dict[str, int]:
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a["file"] == name]
    return {"read": sum(a["read"] for a, _ in pairs), "kept": sum(b["kept"] for _, b in pairs)}


def fingerprint(args: Any, identity: list[Any]) -> str:
    """Of everything that decides the bytes of the corpus: an interrupted run is continued only by the same job."""
    content = repr([corpus_options.VERSION, identity, sorted(corpus_options.settings(args).items())])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def train_punkt(counts: list[dict[str, Any]], folders: Folders, given: str | None) -> str:
    """Trains on the units' samples, in the order of the texts' hashes, each text once. Returns the parameters."""
    from beam_jobs import sentences  # NLTK brings scipy, a second that only the workers should spend

    if given:
        parameters = sentences.to_json(sentences.given(given))
    else:
        texts: dict[str, str] = {}
        for c in counts:
            texts |= dict(json.loads(storage.read_bytes(storage.join(folders.prepared, f"{c['unit']}.sample"))))
        parameters = sentences.to_json(sentences.train([texts[key] for key in sorted(texts)]))
    storage.write_bytes(storage.join(folders.output, "punkt.json"), parameters.encode())
    return parameters


class WriteCorpus(beam.DoFn):
    """Builds the splitter once a worker: its parameters are some megabytes, and it remembers what it has seen."""

    def __init__(self, folders: Folders) -> None:
        self.writing = written.Writing(folders.prepared, folders.written, folders.output)
        self.splitter: SentenceSplitter | None = None

    def process(
        self, element: tuple[str, dict[str, Iterable[Any]]], listed: list[dict[str, Any]], punkt: str
    ) -> Iterator[dict[str, Any]]:
        if self.splitter is None:
            from beam_jobs import sentences

            self.splitter = sentences.SentenceSplitter(sentences.from_json(punkt))
        unit, joined = element
        (counts,) = joined["counts"]
        gone = written.Gone(*(row_numbers(joined.get(name, [])) for name in ("exact", "near", "seen")))
        before = sum(c["lines"] for c in listed if c["file"] == counts["file"] and c["unit"] < unit)
        yield written.write(unit, counts["source"], gone, before, self.writing, self.splitter)


def row_numbers(packed: Iterable[bytes]) -> np.ndarray:
    return np.unique(np.frombuffer(b"".join(packed), dtype=deduplication.ROW_NUMBER))


if __name__ == "__main__":
    main(run)
