"""First pass over a unit: reads, cleans and hashes its reviews, and leaves, as
prepared/UNIT.ENDING: arrow (the rows that stay), the files of buckets.KINDS, codes (hashes of
classes, in the order of hashes), starts (where each bucket begins), rejects (JSON lines, counted
from the unit's start), sample (texts for Punkt and to count languages), dates (of a split by time),
and last json (counts), without which the unit is not done.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.core import languages, storage
from amazon_electra.beam_jobs.core.command import give_memory_back
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.deduplication import buckets, exact, held_out, near
from amazon_electra.beam_jobs.engine.units import add_to_counters, attempt, check_failed
from amazon_electra.beam_jobs.labels import stars, values
from amazon_electra.beam_jobs.reading import dates, fields, work_units
from amazon_electra.beam_jobs.reading.dates import Order
from amazon_electra.beam_jobs.reading.ids import ID, format_id
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from amazon_electra.beam_jobs.reading.work_units import DumpFile, PreparedUnit, Unit, cut_file
from amazon_electra.beam_jobs.text import splits
from amazon_electra.beam_jobs.text.preparation import TextPreparer, join_title

BATCH_REVIEWS, BATCH_CHARACTERS = 4096, 1 << 28
MAX_RAW_EXPANSION = 10  # a text that has so many times its most characters is not cleaned
SCHEMA = pa.schema(
    [
        pa.field("review_id", pa.binary(16)),
        pa.field("text_hash", pa.binary(16)),
        pa.field("rating", pa.float64()),  # stars as given, on a scale that all units decide
        pa.field("split", pa.int8()),
        pa.field("text", pa.string()),  # what a classifier reads: the title, a space, the body
        pa.field("title_characters", pa.int32()),  # of the text; 0: it has no title
        pa.field("runs", pa.uint32()),  # how many runs of words it has, if they are compared
        pa.field("item", pa.uint64()),  # hash of the product; 0: it has none
        pa.field("row", pa.int64()),  # number of the record in its unit, from 1
        pa.field("id", pa.string()),  # the user's own, where a record has one
        pa.field("month", pa.string()),  # of its date, such as 2026-06, where it has one
    ]
)
NO_KEY = "split_by_missing"  # note that counts the reviews without what the split is by
MAX_RATINGS = 1000  # distinct ratings that are counted in a unit: more are on no scale
MAX_VALUES = 10_000  # distinct values of a label in a unit: a column with more holds no classes


@dataclass(frozen=True)
class Preparation:
    """Everything the first pass depends on beside the unit."""

    folder: str
    failed: str  # folder that says why units failed every time
    config: CorpusConfig
    bounds: tuple[float, ...]  # splits.parse_shares
    sample_share: float  # of the pretrain reviews, for Punkt and to count languages
    withholds: bool  # whether reviews are compared with held-out texts

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.config.labels))

    @property
    def schema(self) -> pa.Schema:
        """The columns of a prepared unit, with those of the user's own labels."""
        own = (pa.field(f"{values.LABEL}{name}", pa.string()) for name in self.labels)
        return pa.schema([*SCHEMA, *own])


class Draft(NamedTuple):
    """A review on its way into columns."""

    title: str
    text: str  # the body alone, which decides the split, and whether two reviews are alike
    identity: str
    rating: float | None
    labels: tuple[str | None, ...]
    item: int  # hash of the product; 0: it has none
    key: bytes | None  # hash of the product or user, if the split is by one and it has one
    day: int | None  # if the split is by time and the review has one
    row: int  # number of the record in its unit, from 1
    id: str | None  # the user's own
    month: str | None


class TimeSplit(NamedTuple):
    """How a split by time is made: decided by all reviews before any is prepared."""

    dev: int  # the first day of dev, in days since 1970-01-01
    test: int
    order: Order | None  # of the dates


def count_unit_dates(unit: Unit, preparation: Preparation) -> Iterator[Counter[str]]:
    """Count the reviews of each date of a unit (`dates.count_dates`), unless an earlier run has."""
    path = storage.join_path(preparation.folder, f"{unit.name}.dates")

    def count_unit() -> Counter[str]:
        if not storage.exists(path):
            read_review = fields.make_review_reader(dict(unit.file.layout.mapping), Counter())
            records = work_units.read_records(unit, Tally())
            read = (read_review(item[1]) for item in records if not isinstance(item, Reject))
            storage.write_json(path, dates.count_dates(review.timestamp for review in read))
        return Counter(json.loads(storage.read_bytes(path)))

    return attempt(count_unit, unit.name, unit.file.name, preparation.failed)


def decide_time_split(counts: Counter[str], preparation: Preparation, column: str) -> TimeSplit:
    """Return how reviews are split by time, by the dates of all units in a `column`. Raise
    JobFailed if a unit failed, and UserError where the dates leave it open.
    """
    check_failed(preparation.failed)
    order = dates.decide_order(counts, column, preparation.config.dates)
    days = dates.resolve_days(counts, order)
    require(days, f"no review has a date that can be read; {dates.FORMS}", "split_by", "time")
    return TimeSplit(*splits.find_cut_offs(days, preparation.bounds), order)


def cut_into_units(file: DumpFile, size: int, folder: str, failed: str) -> Iterator[Unit]:
    """Cut a file into units; why that fails every time is written to the folder `failed`."""
    for units in attempt(partial(cut_file, file, size, folder), file.number, file.name, failed):
        yield from units


def prepare_units(
    unit: Unit, preparation: Preparation, time: TimeSplit | None = None
) -> Iterator[PreparedUnit]:
    """Prepare and count a unit, unless an earlier run has; `time` says how it is split by time."""
    name = storage.join_path(preparation.folder, unit.name)

    def prepare_unit() -> PreparedUnit:
        if not storage.exists(f"{name}.json"):
            UnitReader(unit, preparation, time).write(name)
        give_memory_back()
        return PreparedUnit(**json.loads(storage.read_bytes(f"{name}.json")))

    for done in attempt(prepare_unit, unit.name, unit.file.name, preparation.failed):
        add_to_counters({"read": done.read, "bytes": done.bytes}, done.dropped)
        yield done


class UnitReader:
    """Reads one unit once and counts what it drops."""

    def __init__(self, unit: Unit, preparation: Preparation, time: TimeSplit | None) -> None:
        self.unit, self.preparation, self.time = unit, preparation, time
        self.config = preparation.config
        self.read = 0
        self.tally = Tally()
        self.preparer = TextPreparer(self.config, self.tally.notes)
        self.dropped: Counter[str] = Counter()
        self.hashes: list[bytes] = []
        self.keys: list[np.ndarray] = []
        self.bands: list[np.ndarray] = []
        self.runs = held_out.NGramHasher() if preparation.withholds else None
        self.rejects: list[str] = []
        self.sample: list[tuple[str, str]] = []
        self.ratings: Counter[tuple[float, float]] = Counter()
        self.codes: list[tuple[int, ...]] = []  # hashes of the classes of each review
        self.values: list[Counter[str]] = [Counter() for _ in preparation.labels]

    def write(self, name: str) -> None:
        """Write the files of the unit, their names after `name`, the counts last."""
        labels, packing = self.preparation.labels, pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            storage.atomic_path(f"{name}.arrow") as path,
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, self.preparation.schema, options=packing) as writer,
        ):
            for table in self.read_tables():
                writer.write_table(table)
        keys = np.concatenate([np.empty(0, np.uint64), *self.keys])
        packed = exact.pack_rows(b"".join(self.hashes), keys)
        starts = dict.fromkeys(buckets.KINDS, buckets.find_starts(np.empty(0, np.uint64)))
        starts["hashes"] = buckets.find_starts(packed["high"].astype(np.uint64))
        if labels:
            codes = np.empty(len(packed), exact.make_codes_kind(len(labels)))
            codes["high"] = packed["high"]
            of_rows = np.array(self.codes, np.uint32).reshape(-1, len(labels))
            codes["codes"] = of_rows[packed["row"]]
            storage.write_bytes(f"{name}.codes", codes.tobytes())
        if self.config.near_duplicates:
            bands = buckets.BucketedRows(buckets.BAND)
            if self.bands:
                for rows in near.list_band_rows(np.concatenate(self.bands), packed):
                    bands.add_rows(rows)
            starts["bands"] = bands.save(f"{name}.bands")
        if self.runs:
            starts["runs"] = self.runs.trained.save(f"{name}.runs")
            starts["heldout"] = self.runs.held_out.save(f"{name}.heldout")
        storage.write_bytes(f"{name}.hashes", packed.tobytes())
        storage.write_bytes(f"{name}.starts", np.concatenate([*starts.values()]).tobytes())
        storage.write_bytes(f"{name}.rejects", "".join(self.rejects).encode())
        storage.write_bytes(f"{name}.sample", json.dumps(self.sample).encode())
        counts = PreparedUnit(
            unit=self.unit.name,
            prepared=len(packed),
            file=self.unit.file.name,
            short_name=self.unit.file.short_name,
            source=self.unit.file.source,
            read=self.read,
            lines=self.tally.lines,
            bytes=self.tally.bytes,
            dropped=dict(sorted(self.dropped.items())),
            notes=dict(sorted(self.tally.notes.items())),
            ratings=stars.encode_ratings(self.ratings),
            labels=dict(zip(labels, map(values.keep_frequent, self.values), strict=True)),
            held_out_runs=int(starts["heldout"][-1]),
        )
        storage.write_json(f"{name}.json", asdict(counts))

    def read_tables(self) -> Iterator[pa.Table]:
        drafts, characters = list[Draft](), 0
        for draft in self.read_drafts():
            drafts.append(draft)
            characters += len(draft.text)
            if len(drafts) == BATCH_REVIEWS or characters > BATCH_CHARACTERS:
                yield self.finish_batch(drafts)
                drafts, characters = [], 0
        if drafts:
            yield self.finish_batch(drafts)

    def read_drafts(self) -> Iterator[Draft]:
        """Yield each review that has a text; count the others, and note where rejects are."""
        file, by = self.unit.file, self.config.split_by
        order = self.time.order if self.time else self.config.dates
        mapping, notes = dict(file.layout.mapping), self.tally.notes
        labels, titled = self.preparation.labels, self.config.title
        read_fields = fields.make_review_reader(mapping, notes, labels, titled)
        for item in work_units.read_records(self.unit, self.tally):
            self.read += 1
            if isinstance(item, Reject):
                self.dropped[item.reason] += 1
                entry = {"file": file.name, "line": item.line, "reason": item.reason}
                entry |= {"bytes": item.size, "sha256": hash_bytes(item.raw)}  # it names reviewers
                self.rejects.append(json.dumps(entry) + "\n")
                continue
            review = read_fields(item[1])
            rating = review.rating
            if rating and (rating in self.ratings or len(self.ratings) < MAX_RATINGS):
                self.ratings[rating] += 1
            elif rating or "stars" in mapping:
                notes["stars_unknown"] += 1
            text, reason = self.clean_text(review.text)
            if reason:
                self.dropped[reason] += 1
                continue
            product = splits.hash_identifier(review.item_id)
            of = (file.source, review.item_id, review.user_id, review.timestamp, "")
            yield Draft(
                title=self.preparer.make_title(review.title, text),
                text=text,
                identity="\x1f".join(map(str, of)),
                rating=rating[0] if rating else None,
                labels=review.labels,
                item=int.from_bytes(product[:8]) if product else 0,
                key=splits.hash_identifier(review.user_id) if by == "user" else product,
                day=dates.parse_day(review.timestamp, order) if by == "time" else None,
                row=self.read,
                id=format_id(item[1].get(mapping[ID])) if ID in mapping else None,
                month=dates.read_month(review.timestamp, order),
            )

    def clean_text(self, text: Any) -> tuple[str, str]:
        most, least = self.config.max_characters, self.config.min_words
        if not isinstance(text, str):
            return "", "no text" if text is None else "text is not a string"
        if len(text) > MAX_RAW_EXPANSION * most:
            return "", "too long"
        text = self.preparer.clean(text)
        if not text:
            return "", "empty text"
        if len(text) > most:
            return "", "too long"
        return text, "too short" if least > 1 and languages.count_words(text) < least else ""

    def finish_batch(self, drafts: list[Draft]) -> pa.Table:
        """Drop what only shows in many texts at once, then return the columns of the rest."""
        labels, schema = self.preparation.labels, self.preparation.schema
        columns: list[list[Any]] = [list(column) for column in zip(*drafts, strict=True)]
        for column in columns[:2]:
            self.preparer.mask(column)
        if wanted := self.config.languages:
            stays = [languages.find_language(text) in ("", *wanted) for text in columns[1]]
            self.dropped["other language"] += stays.count(False)
            columns = [list(compress(column, stays)) for column in columns]
        titles, texts, identities, ratings, classes, items, keys, days, *record = columns
        hashes = [exact.hash_text(text) for text in texts]
        packed = b"".join(hashes)
        sides = self.assign_splits(hashes, keys, days)
        if threshold := self.config.near_duplicates:
            self.bands.append(near.hash_bands(texts, threshold))
        runs = np.zeros(len(sides), np.uint32)
        if self.runs:
            runs = self.runs.add_texts(texts, sides >= splits.SPLITS.index("dev"))
        self.hashes += hashes
        share = int(self.preparation.sample_share * (1 << 32))
        chosen = np.frombuffer(packed, dtype=">u4").reshape(-1, 4)[:, 2] < share
        chosen &= sides == splits.SPLITS.index("pretrain")
        self.sample.extend((hashes[i].hex(), texts[i]) for i in np.flatnonzero(chosen))
        of_labels = [[row[i] for row in classes] for i in range(len(labels))]
        for name, counts, typed in zip(labels, self.values, of_labels, strict=True):
            counts.update(value for value in typed if value is not None)
            many = f"has more than {MAX_VALUES:,} different values in {self.unit.file.name}; "
            many += "name a column with 2 to 200 classes"
            require(len(counts) <= MAX_VALUES, many, "labels", name)
        if labels:
            folds, distinct = self.config.fold_labels, {value for row in classes for value in row}
            known = {value: values.hash_value(value, folds) for value in distinct}
            self.codes += [tuple(known[value] for value in row) for row in classes]
        ids = b"".join(
            xxhash.xxh3_128_digest((identity + text).encode("utf-8", "surrogatepass"))
            for identity, text in zip(identities, texts, strict=True)
        )
        rest = map("{}\x1f{}\x1f{}".format, titles, ratings, classes)
        self.keys.append(exact.compute_keys(ids, rest))
        joined, lengths = list(map(join_title, titles, texts)), list(map(len, titles))
        given: list[Any] = [ratings, sides, joined, lengths, runs, items, *record, *of_labels]
        arrays = [
            pa.Array.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(digests)])
            for digests in (ids, packed)
        ]
        for column, field in zip(given, list(schema)[len(arrays) :], strict=True):
            arrays.append(pa.array(column, field.type))
        return pa.Table.from_arrays(arrays, schema=schema)

    def assign_splits(
        self, hashes: list[bytes], keys: list[bytes | None], days: list[int | None]
    ) -> np.ndarray:
        """Return the side of each review, int8; without what the split is by it is by the text."""
        by, seed, bounds = self.config.split_by, self.config.seed, self.preparation.bounds
        if by != "text" and (missing := (days if by == "time" else keys).count(None)):
            self.tally.notes[NO_KEY] += missing
        if self.time:
            cut_offs = self.time.dev, self.time.test
            return splits.assign_by_day(days, cut_offs, b"".join(hashes), bounds, seed)
        if by != "text":
            hashes = [key or text for key, text in zip(keys, hashes, strict=True)]
        return splits.assign_splits(b"".join(hashes), bounds, seed)
