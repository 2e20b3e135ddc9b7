"""First pass over a unit: reads, cleans and hashes its reviews, and leaves in the work folder:

prepared/UNIT.arrow       one row a review (Arrow IPC, lz4): what the corpus will hold, its text
prepared/UNIT.hashes      buckets.PACKED_ROW, sorted by text hash
prepared/UNIT.codes       hashes of classes in this order, if there are labels of the user's own
prepared/UNIT.bands       buckets.BAND, if near-duplicates are looked for
prepared/UNIT.runs        runs of words of the reviews that may be trained on (held_out.py)
prepared/UNIT.heldout     those of the dev and test reviews
prepared/UNIT.starts      where each bucket begins in those of buckets.KINDS
prepared/UNIT.rejects     JSON lines; lines count from the unit's start
prepared/UNIT.sample      JSON list of texts for Punkt, whose languages are counted too
prepared/UNIT.dates       reviews by date, counted before, if the split is by time
prepared/UNIT.json        counts; written last: the unit is done if and only if it is there
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from amazon_electra.beam_jobs.core.errors import UserError
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
MAX_RAW_EXPANSION = 10
"""Times the characters that a text may have: what is longer before it is cleaned is not cleaned."""
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
RECORD = ("row", "id", "month")  # columns of a draft that stay as they are
NO_KEY = "split_by_missing"  # note that counts the reviews without what the split is by
MAX_RATINGS = 1000  # distinct ratings that are counted in a unit: more are on no scale
MAX_ID = 200  # characters of an id; what is longer is none
MAX_VALUES = 10_000  # distinct values of a label in a unit: a column with more holds no classes


def make_schema(labels: Sequence[str]) -> pa.Schema:
    """Return the columns of a prepared unit, with those of the user's own labels."""
    own = (pa.field(f"{values.LABEL}{name}", pa.string()) for name in labels)
    return pa.schema([*SCHEMA, *own])


@dataclass(frozen=True)
class Preparation:
    """Everything the first pass depends on beside the unit."""

    folder: str
    config: CorpusConfig
    bounds: tuple[float, ...]  # splits.parse_shares
    sample_share: float  # of the pretrain reviews, for Punkt and to count languages
    withholds: bool  # whether reviews are compared with held-out texts

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns of the user's own classes."""
        return tuple(dict.fromkeys(self.config.labels))


class Draft(NamedTuple):
    """A review on its way into columns."""

    title: str
    text: str
    """Without the title: the body alone decides whether two reviews are alike, and the split."""
    identity: str
    rating: float | None
    labels: tuple[str | None, ...]
    item: int  # hash of the product; 0: it has none
    key: bytes | None
    """Hash of the product or user, if the split is by one; None for a review that has it not."""
    day: int | None  # if the split is by time and the review has one
    row: int  # number of the record in its unit, from 1
    id: str | None  # the user's own
    month: str | None


def build_binary_array(values: bytes) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(values) // 16, [None, pa.py_buffer(values)]
    )


class TimeSplit(NamedTuple):
    """How a split by time is made: decided by all reviews before any is prepared."""

    dev: int  # the first day of dev, in days since 1970-01-01
    test: int
    order: Order | None  # of the dates


DateCounts = Counter[str]  # how often each date occurs (`dates.count_dates`)


def count_unit_dates(unit: Unit, preparation: Preparation, failed: str) -> Iterator[DateCounts]:
    """Count the reviews of each date of a unit, unless an earlier run has."""
    path = storage.join_path(preparation.folder, f"{unit.name}.dates")

    def count_unit() -> DateCounts:
        if not storage.exists(path):
            read_review = fields.make_review_reader(dict(unit.file.layout.mapping), Counter())
            records = work_units.read_records(unit, Tally())
            counts = dates.count_dates(
                read_review(item[1]).timestamp for item in records if not isinstance(item, Reject)
            )
            storage.write_json(path, counts)
        return Counter(json.loads(storage.read_bytes(path)))

    return attempt(count_unit, unit.name, unit.file.name, failed)


def add_dates(counts: Iterable[DateCounts]) -> DateCounts:
    """Return how many reviews of several units each date has."""
    return sum(counts, DateCounts())


def decide_time_split(
    counts: DateCounts, preparation: Preparation, column: str, failed: str
) -> TimeSplit:
    """Return how reviews are split by time, by the dates of all units in a `column`. Raise
    JobFailed if a unit failed, and UserError where the dates leave it open.
    """
    check_failed(failed)
    order = dates.decide_order(counts, column, preparation.config.dates)
    days, _ = dates.resolve_days(counts, order)
    if not days:
        raise UserError(f"no review has a date that can be read; {dates.FORMS}", "split_by", "time")
    return TimeSplit(*splits.find_cut_offs(days, preparation.bounds), order)


def cut_into_units(file: DumpFile, size: int, folder: str, failed: str) -> Iterator[Unit]:
    """Cut a file into units; why that fails every time is written to the folder `failed`."""
    for units in attempt(partial(cut_file, file, size, folder), file.number, file.name, failed):
        yield from units


def prepare_units(
    unit: Unit, preparation: Preparation, failed: str, time: TimeSplit | None = None
) -> Iterator[PreparedUnit]:
    """Prepare and count a unit; why one fails every time is written to the folder `failed`."""
    work = partial(prepare_unit, unit, preparation, time)
    for done in attempt(work, unit.name, unit.file.name, failed):
        add_to_counters({"read": done.read, "bytes": done.bytes}, done.dropped)
        yield done


def prepare_unit(
    unit: Unit, preparation: Preparation, time: TimeSplit | None = None
) -> PreparedUnit:
    """Prepare a unit unless an earlier run has; `time` says how it is split by time, if it is."""
    name = storage.join_path(preparation.folder, unit.name)
    if not storage.exists(f"{name}.json"):
        _write_unit(unit, preparation, name, time)
    give_memory_back()
    return PreparedUnit(**json.loads(storage.read_bytes(f"{name}.json")))


def _write_unit(unit: Unit, preparation: Preparation, name: str, time: TimeSplit | None) -> None:
    reader = UnitReader(unit, preparation, time)
    packing = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        storage.atomic_path(f"{name}.arrow") as path,
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, make_schema(preparation.labels), options=packing) as writer,
    ):
        for table in reader.read_tables():
            writer.write_table(table)
    keys = np.concatenate(reader.keys) if reader.keys else np.empty(0, np.uint64)
    packed = exact.pack_rows(b"".join(reader.hashes), keys)
    starts = dict.fromkeys(buckets.KINDS, buckets.find_starts(np.empty(0, np.uint64)))
    starts["hashes"] = buckets.find_starts(packed["high"].astype(np.uint64))
    storage.write_bytes(f"{name}.hashes", packed.tobytes())
    if preparation.labels:
        codes = np.empty(len(packed), exact.make_codes_kind(len(preparation.labels)))
        codes["high"] = packed["high"]
        codes["codes"] = np.array(reader.codes, np.uint32).reshape(len(packed), -1)[packed["row"]]
        storage.write_bytes(f"{name}.codes", codes.tobytes())
    if preparation.config.near_duplicates:
        bands = buckets.BucketedRows(buckets.BAND)
        hashes = np.concatenate(reader.bands) if reader.bands else np.empty((0, 1), np.uint64)
        for rows in near.list_band_rows(hashes, packed):
            bands.add_rows(rows)
        starts["bands"] = bands.save(f"{name}.bands")
    if reader.runs:
        starts["runs"] = reader.runs.trained.save(f"{name}.runs")
        starts["heldout"] = reader.runs.held_out.save(f"{name}.heldout")
    joined = np.concatenate([starts[kind] for kind in buckets.KINDS])
    storage.write_bytes(f"{name}.starts", joined.tobytes())
    storage.write_bytes(f"{name}.rejects", "".join(reader.rejects).encode())
    storage.write_bytes(f"{name}.sample", json.dumps(reader.sample).encode())
    counts = PreparedUnit(
        unit=unit.name,
        prepared=len(packed),
        file=unit.file.name,
        short_name=unit.file.short_name,
        source=unit.file.source,
        read=reader.read,
        lines=reader.tally.lines,
        bytes=reader.tally.bytes,
        dropped=dict(sorted(reader.dropped.items())),
        notes=dict(sorted(reader.tally.notes.items())),
        ratings=stars.encode_ratings(reader.ratings),
        labels={
            name: values.keep_frequent(counts)
            for name, counts in zip(preparation.labels, reader.values, strict=True)
        },
        held_out_runs=int(starts["heldout"][-1]),
    )
    storage.write_json(f"{name}.json", asdict(counts))


class UnitReader:
    """Reads one unit once and counts what it drops."""

    def __init__(self, unit: Unit, preparation: Preparation, time: TimeSplit | None) -> None:
        self.unit, self.preparation, self.time = unit, preparation, time
        self.config = preparation.config
        self.order = time.order if time else self.config.dates
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

    def read_tables(self) -> Iterator[pa.Table]:
        drafts, characters = list[Draft](), 0
        for review, own_id in self.read_reviews():
            text = self.clean_text(review.text)
            if text is not None:
                drafts.append(self.draft_review(review, text, own_id))
                characters += len(text)
                if len(drafts) == BATCH_REVIEWS or characters > BATCH_CHARACTERS:
                    yield self.finish_batch(drafts)
                    drafts, characters = [], 0
        if drafts:
            yield self.finish_batch(drafts)

    def read_reviews(self) -> Iterator[tuple[fields.Review, str | None]]:
        """Yield each review, and the user's own id of its record."""
        mapping = dict(self.unit.file.layout.mapping)
        labels, titled = self.preparation.labels, self.config.title
        read_fields = fields.make_review_reader(mapping, self.tally.notes, labels, titled)
        for item in work_units.read_records(self.unit, self.tally):
            self.read += 1
            if isinstance(item, Reject):
                self.record_reject(item)
                continue
            review = read_fields(item[1])
            is_known = review.rating in self.ratings or len(self.ratings) < MAX_RATINGS
            if review.rating is not None and is_known:
                self.ratings[review.rating] += 1
            elif review.rating is not None or "stars" in mapping:
                self.tally.notes["stars_unknown"] += 1
            own_id = format_id(item[1].get(mapping[ID])) if ID in mapping else None
            yield review, own_id if own_id and len(own_id) <= MAX_ID else None

    def clean_text(self, text: Any) -> str | None:
        """Return the clean text, or None after counting why there is none."""
        if not isinstance(text, str):
            self.dropped["no text" if text is None else "text is not a string"] += 1
            return None
        if len(text) > MAX_RAW_EXPANSION * self.config.max_characters:
            self.dropped["too long"] += 1
            return None
        text = self.preparer.clean(text)
        if not text:
            self.dropped["empty text"] += 1
        elif len(text) > self.config.max_characters:
            self.dropped["too long"] += 1
        elif self.config.min_words > 1 and languages.count_words(text) < self.config.min_words:
            self.dropped["too short"] += 1
        else:
            return text
        return None

    def draft_review(self, review: fields.Review, text: str, own_id: str | None) -> Draft:
        by, source = self.config.split_by, self.unit.file.source
        item = splits.hash_identifier(review.item_id)
        return Draft(
            title=self.preparer.make_title(review.title, text),
            text=text,
            identity=f"{source}\x1f{review.item_id}\x1f{review.user_id}\x1f{review.timestamp}\x1f",
            rating=review.rating[0] if review.rating else None,
            labels=review.labels,
            item=int.from_bytes(item[:8]) if item else 0,
            key=splits.hash_identifier(review.user_id) if by == "user" else item,
            day=dates.parse_day(review.timestamp, self.order) if by == "time" else None,
            row=self.read,
            id=own_id,
            month=dates.read_month(review.timestamp, self.order),
        )

    def record_reject(self, item: Reject) -> None:
        """Note where the record is, and not what it says, which names reviewers."""
        self.dropped[item.reason] += 1
        entry = {"file": self.unit.file.name, "line": item.line, "reason": item.reason}
        entry |= {"bytes": item.size, "sha256": hash_bytes(item.raw)}
        self.rejects.append(json.dumps(entry) + "\n")

    def finish_batch(self, drafts: list[Draft]) -> pa.Table:
        """Drop what only shows in many texts at once, then return the columns of the rest."""
        preparation = self.preparation
        columns: list[list[Any]] = [list(column) for column in zip(*drafts, strict=True)]
        for column in columns[:2]:
            self.preparer.mask(column)
        if wanted := self.config.languages:
            stays = [languages.find_language(text) in ("", *wanted) for text in columns[1]]
            self.dropped["other language"] += stays.count(False)
            columns = [list(compress(column, stays)) for column in columns]
        titles, texts, identities, ratings, labels, items, keys, days, *record = columns

        hashes = [exact.hash_text(text) for text in texts]
        sides = self.assign_splits(hashes, keys, days)
        if threshold := self.config.near_duplicates:
            self.bands.append(near.hash_bands(texts, threshold))
        runs = np.zeros(len(sides), np.uint32)
        if self.runs:
            runs = self.runs.add_texts(texts, sides >= splits.SPLITS.index("dev"))
        self.hashes += hashes
        packed = b"".join(hashes)
        share = int(preparation.sample_share * (1 << 32))
        chosen = np.frombuffer(packed, dtype=">u4").reshape(-1, 4)[:, 2] < share
        chosen &= sides == splits.SPLITS.index("pretrain")
        self.sample.extend((hashes[i].hex(), texts[i]) for i in np.flatnonzero(chosen))
        for i, (name, counts) in enumerate(zip(preparation.labels, self.values, strict=True)):
            counts.update(row[i] for row in labels if row[i] is not None)
            if len(counts) > MAX_VALUES:
                why = f"has more than {MAX_VALUES:,} different values in {self.unit.file.name}"
                raise UserError(f"{why}; name a column with 2 to 200 classes", "labels", name)

        if preparation.labels:
            known = {
                value: values.hash_value(value, self.config.fold_labels)
                for value in {value for row in labels for value in row}
            }
            self.codes += [tuple(known[value] for value in row) for row in labels]
        ids = b"".join(
            xxhash.xxh3_128_digest((identity + text).encode("utf-8", "surrogatepass"))
            for identity, text in zip(identities, texts, strict=True)
        )
        rest = map("{}\x1f{}\x1f{}".format, titles, ratings, labels)
        self.keys.append(exact.compute_keys(ids, rest))
        arrays = [
            build_binary_array(ids),
            build_binary_array(packed),
            pa.array(ratings, pa.float64()),
            pa.array(sides),
            pa.array(map(join_title, titles, texts), pa.string()),
            pa.array(map(len, titles), pa.int32()),
            pa.array(runs),
            pa.array(items, pa.uint64()),
            *(pa.array(one, SCHEMA.field(n).type) for n, one in zip(RECORD, record, strict=True)),
            *(pa.array([row[i] for row in labels], pa.string()) for i in range(len(self.values))),
        ]
        return pa.Table.from_arrays(arrays, schema=make_schema(preparation.labels))

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
