"""What follows the first pass: Punkt is trained on its samples, then a second pass over each unit
drops the duplicates, splits sentences and writes a file of the corpus."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import give_memory_back
from amazon_electra.beam_jobs.core.languages import count_languages
from amazon_electra.beam_jobs.core.parquet import write_tables
from amazon_electra.beam_jobs.corpus.plan import Folders
from amazon_electra.beam_jobs.deduplication.exact import CONTRADICTION, ROW_NUMBER
from amazon_electra.beam_jobs.deduplication.held_out import UnitMatches
from amazon_electra.beam_jobs.engine.units import add_to_counters, attempt
from amazon_electra.beam_jobs.labels import stars, values
from amazon_electra.beam_jobs.labels.classes import count_labels
from amazon_electra.beam_jobs.labels.stars import Scale
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit, UnitSize
from amazon_electra.beam_jobs.text.sentences import SentenceSplitter
from amazon_electra.beam_jobs.text.splits import SPLITS

NAMES = pa.dictionary(pa.int32(), pa.string())
CORPUS_SCHEMA = pa.schema(
    [
        pa.field("review_id", pa.binary(16), nullable=False),
        pa.field("text_hash", pa.binary(16), nullable=False),
        pa.field("stars", pa.int8()),
        pa.field("source", NAMES, nullable=False),
        pa.field("file", NAMES, nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # of the file, from 1, as in scores
        pa.field("id", pa.string()),  # the user's own
        pa.field("product", pa.uint64()),  # its hash
        pa.field("month", NAMES),  # of its date, such as 2026-06
        pa.field("split", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("has_title", pa.bool_(), nullable=False),
        pa.field("sentences", pa.list_(pa.string()), nullable=False),
    ]
)  # and the columns of the user's own labels
LANGUAGE_TEXTS = 1_000  # reviews whose languages are counted, in a tenth of a second
WRITE_REASONS = ("duplicate", "near duplicate", "withheld")  # why the second pass drops a review
WITHHELD = WRITE_REASONS.index("withheld")
STAYS = len(WRITE_REASONS)  # instead of the number of a reason: the review is kept


@dataclass(frozen=True)
class WrittenUnit:
    """What writing a unit counted; its file of JSON marks the unit as done."""

    unit: str
    kept: int
    dropped: dict[str, int]  # reviews by the reason, each of WRITE_REASONS, why they are not kept
    sentences: int
    splits: dict[str, int]
    stars: dict[str, int]
    labels: dict[str, dict[str, int]]  # reviews of each own label by split and class, `split.class`
    contradicted: dict[str, dict[str, int]] = field(default_factory=dict)  # by label and classes


def write_punkt(units: list[PreparedUnit], folders: Folders, punkt: str | None) -> str:
    """Write punkt.json, the parameters in `punkt` or else trained ones, and return its content.

    They are trained on the samples of all units, in the order of the texts' hashes, each text once.
    """
    from amazon_electra.beam_jobs.text.punkt import encode_punkt, read_punkt, train_punkt

    sample: dict[str, str] = {}
    paths = [storage.join_path(folders.prepared, f"{unit.unit}.sample") for unit in units]
    for found in storage.map_paths(storage.read_bytes, paths):
        sample |= dict(json.loads(found))
    texts = [sample[key] for key in sorted(sample)]
    storage.write_json(folders.languages, count_languages(texts[:LANGUAGE_TEXTS]))
    parameters = encode_punkt(read_punkt(punkt) if punkt else train_punkt(texts))
    storage.write_bytes(storage.join_path(folders.output, "punkt.json"), parameters.encode())
    return parameters


def decide_scale(units: Sequence[PreparedUnit], given: str | None) -> Scale:
    """Return the scale of the stars, by all ratings; UserError where they leave it open."""
    files = defaultdict[str, Counter[stars.Rating]](Counter)
    for unit in units:
        files[unit.file].update(stars.decode_ratings(unit.ratings))
    where = next((file for file, counts in files.items() if counts), "the dump")
    return stars.decide_scales(files, where, given)


def sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums = Counter[str]()
    for unit in counts:
        sums.update(unit)
    return dict(sorted(sums.items()))


def count_values(units: Iterable[PreparedUnit | WrittenUnit], column: str) -> dict[str, int]:
    return sum_counts(unit.labels.get(column, {}) for unit in units)


def decide_labels(
    units: Sequence[PreparedUnit], config: CorpusConfig
) -> dict[str, values.LabelValues]:
    return {
        column: values.decide_values(count_values(units, column), config.fold_labels)
        for column in dict.fromkeys(config.labels)
    }


class WriteUnits(beam.DoFn):
    """Writes units, with one sentence splitter, some megabytes, for all units of a worker."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.splitter: SentenceSplitter | None = None
        self.numbers: dict[str, int] = {}

    def process(
        self,
        element: tuple[str, dict[str, Iterable[Any]]],
        units: list[UnitSize],
        punkt: str,
        scale: Scale,
        labels: Mapping[str, values.LabelValues],
        matches: Sequence[str],
    ) -> Iterator[WrittenUnit]:
        """Write a unit; `units` are all in their order, `matches` the paths of `write_matches`."""
        if self.splitter is None:
            from amazon_electra.beam_jobs.text.punkt import decode_punkt

            self.splitter = SentenceSplitter(decode_punkt(punkt))
            self.numbers = {unit.unit: number for number, unit in enumerate(units)}
        unit, joined = element
        give_memory_back()
        [prepared] = joined["prepared"]
        kinds = "near", "exact", "contradictions"
        near, exact, several = (b"".join(joined.get(kind, ())) for kind in kinds)
        contradictions, number = np.frombuffer(several, CONTRADICTION), self.numbers[unit]
        splitter, marker = self.splitter, storage.join_path(self.folders.written, f"{unit}.json")

        def write() -> WrittenUnit:
            if storage.exists(marker):
                return WrittenUnit(**json.loads(storage.read_bytes(marker)))
            reasons = np.full(prepared.prepared, STAYS, np.uint8)
            for packed, reason in ((near, "near duplicate"), (exact, "duplicate")):
                reasons[np.frombuffer(packed, ROW_NUMBER)] = WRITE_REASONS.index(reason)
            tables = UnitTables(
                *(prepared, units[number], reasons, contradictions),
                *(UnitMatches(number, matches), scale, labels, splitter),
            )
            counts = tables.write(self.folders)
            storage.write_json(marker, asdict(counts))
            return counts

        for done in attempt(write, unit, prepared.file, self.folders.failed):
            add_to_counters({"kept": done.kept}, done.dropped)
            yield done


@dataclass
class UnitTables:
    """The rows of a unit that stay, batch by batch, and their counts."""

    prepared: PreparedUnit
    size: UnitSize
    reasons: np.ndarray
    contradictions: np.ndarray
    matches: UnitMatches
    scale: Scale
    classes: Mapping[str, values.LabelValues]
    splitter: SentenceSplitter
    splits: Counter[str] = field(default_factory=Counter)
    stars: Counter[str] = field(default_factory=Counter)
    labels: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    sentences: int = 0
    contradicted: list[dict[str, Any]] = field(default_factory=list)  # texts with several classes

    def write(self, folders: Folders) -> WrittenUnit:
        unit, join = self.size.unit, storage.join_path
        own = [pa.field(f"{values.LABEL}{column}", NAMES) for column in self.classes]
        schema = pa.schema([*CORPUS_SCHEMA, *own])
        with storage.open_bytes(join(folders.prepared, f"{unit}.arrow")) as stream:
            tables = self._read_tables(pa.ipc.open_file(stream), schema)
            rows = write_tables(join(folders.output, f"corpus-{unit}.parquet"), schema, tables)
        packed = storage.read_bytes(join(folders.prepared, f"{unit}.rejects"))
        rejects = [json.loads(line) for line in packed.splitlines()]
        moved = [entry | {"line": entry["line"] + self.size.lines_before} for entry in rejects]
        for folder, entries in (("rejects", moved), (values.CONTRADICTED, self.contradicted)):
            if entries:
                lines = "".join(json.dumps(entry) + "\n" for entry in entries)
                path = join(folders.output, folder, f"{unit}.jsonl")
                storage.write_bytes(path, lines.encode())
        dropped = np.bincount(self.reasons, minlength=STAYS).tolist()
        contradicted = defaultdict[str, Counter[str]](Counter)
        for entry in self.contradicted:
            contradicted[entry["column"]][" and ".join(entry["labels"])] += 1
        return WrittenUnit(
            unit=unit,
            kept=rows,
            dropped=dict(zip(WRITE_REASONS, dropped, strict=False)),
            sentences=self.sentences,
            splits=dict(sorted(self.splits.items())),
            stars=dict(sorted(self.stars.items())),
            labels={name: dict(sorted(counts.items())) for name, counts in self.labels.items()},
            contradicted={column: dict(counts) for column, counts in contradicted.items()},
        )

    def _read_tables(
        self, reader: pa.ipc.RecordBatchFileReader, schema: pa.Schema
    ) -> Iterator[pa.Table]:
        """Yield the rows that stay; those that nearly repeat a held-out text are withheld."""
        start = 0
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            reasons = self.reasons[start : start + batch.num_rows]
            is_near = self.matches.mark_near(start, batch.column("runs").to_numpy())
            reasons[(reasons == STAYS) & is_near] = WITHHELD
            stays = reasons == STAYS
            if stays.any():
                rows = start + np.flatnonzero(stays)
                yield self._build_table(batch.filter(pa.array(stays)), rows, schema)
            start += batch.num_rows

    def _build_table(self, batch: pa.RecordBatch, rows: np.ndarray, schema: pa.Schema) -> pa.Table:
        sides = batch.column("split").to_numpy(zero_copy_only=False)
        for side, count in zip(*np.unique(sides, return_counts=True), strict=True):
            self.splits[SPLITS[side]] += int(count)
        items = batch.column("item").to_numpy()
        given = batch.column("rating").fill_null(np.nan).to_numpy(zero_copy_only=False)
        codes = self.scale.map_ratings(given)
        for code, count in zip(*np.unique(sides * 8 + codes, return_counts=True), strict=True):
            self.stars[f"{SPLITS[code // 8]}.{code % 8 or 'none'}"] += int(count)
        columns = {n: batch.column(n) for n in ("review_id", "text_hash", "id")}
        columns["stars"] = pa.array(codes, mask=codes == 0)
        one = pa.array(np.zeros(batch.num_rows, np.int32))
        columns["source"] = pa.DictionaryArray.from_arrays(one, [self.prepared.source])
        columns["file"] = pa.DictionaryArray.from_arrays(one, [self.prepared.short_name])
        columns["row"] = pc.add(batch.column("row"), self.size.rows_before)
        columns["product"] = pa.array(items, mask=items == 0)
        columns["month"] = batch.column("month").dictionary_encode()
        columns["split"] = pa.DictionaryArray.from_arrays(batch.column("split"), list(SPLITS))
        columns["has_title"] = pc.greater(batch.column("title_characters"), 0)
        columns["sentences"] = split_reviews(batch, self.splitter)
        self.sentences += len(columns["sentences"].values)
        for number, (column, known) in enumerate(self.classes.items()):
            classes = self._map_labels(number, column, batch, rows)
            columns[values.LABEL + column] = pa.array(classes, pa.string()).dictionary_encode()
            for (side, value), count in Counter(zip(sides.tolist(), classes, strict=True)).items():
                counts = self.labels[column]
                count_labels(counts, SPLITS[side], value, known.is_multilabel, count)
        return pa.Table.from_pydict(columns, schema=schema)

    def _map_labels(
        self, number: int, column: str, batch: pa.RecordBatch, rows: np.ndarray
    ) -> list[str | None]:
        """Return the classes of reviews with these row numbers; none where copies have several."""
        known, typed = self.classes[column], batch.column(values.LABEL + column).to_pylist()
        found = {value: known.find_class(value) for value in {*typed}}
        names = [found[value] for value in typed]
        several = self.contradictions[self.contradictions["column"] == number]
        _, here, there = np.intersect1d(rows, several["row"], return_indices=True)
        by_code = {
            values.hash_value(name, known.folds): name
            for name in (known.names.values() if len(here) else ())
        }
        for place, codes in zip(here.tolist(), several["codes"][there].tolist(), strict=True):
            names[place] = None
            row, own_id, text = (batch.column(n)[place].as_py() for n in ("row", "id", "text"))
            entry = {"file": self.prepared.short_name, "column": column}
            entry |= {"row": row + self.size.rows_before, "id": own_id}
            classes = {by_code.get(code, "several values") for code in codes if code}
            self.contradicted.append(entry | {"labels": sorted(classes), "text": text})
        return names


def split_reviews(batch: pa.RecordBatch, splitter: SentenceSplitter) -> pa.ListArray:
    """Return the sentences of prepared reviews, list<string> [reviews]; a title is the first."""
    sizes = batch.column("title_characters").to_numpy()
    has_title = sizes > 0
    if not has_title.any():
        return splitter.split(batch.column("text"))
    titles, bodies = list[str](), list[str]()
    for text, size in zip(batch.column("text").to_pylist(), sizes.tolist(), strict=True):
        titles += [text[:size]] if size else []
        bodies.append(text[size + 1 :] if size else text)
    sentences = splitter.split(pa.array(bodies, pa.string()))
    starts, count = sentences.offsets.to_numpy(), len(sentences.values)
    order = np.insert(np.arange(count), starts[:-1][has_title], count + np.arange(len(titles)))
    values = pa.concat_arrays([sentences.values, pa.array(titles, pa.string())])
    starts = starts + np.concatenate([[0], np.cumsum(has_title)])
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values.take(pa.array(order)))
