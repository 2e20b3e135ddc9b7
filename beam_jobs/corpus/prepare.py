"""First pass over a unit: reads, cleans and hashes its reviews, and leaves in the work folder:

prepared/UNIT.arrow       one row a review (Arrow IPC, lz4): what the corpus will hold, its text
prepared/UNIT.hashes      exact.PACKED_ROW, sorted by text hash
prepared/UNIT.bands       near.BAND, if near-duplicates are looked for
prepared/UNIT.signatures  their signatures, by row number
prepared/UNIT.runs        runs of words of the reviews that may be trained on (held_out.py)
prepared/UNIT.heldout     those of the dev and test reviews
prepared/UNIT.starts      where each bucket begins in those of buckets.KINDS
prepared/UNIT.rejects     JSON lines; lines count from the unit's start
prepared/UNIT.sample      JSON list of texts for Punkt, whose languages are counted too
prepared/UNIT.days        reviews by day, counted before, if the split is by time
prepared/UNIT.json        counts; written last: the unit is done if and only if it is there
"""

import base64
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from beam_jobs.core import storage
from beam_jobs.core.command import give_memory_back
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import hash_bytes
from beam_jobs.deduplication import buckets, exact, held_out, near
from beam_jobs.engine.units import add_to_counters, attempt, check_failed
from beam_jobs.reading import fields, stars, work_units
from beam_jobs.reading.dates import FORMS, parse_day
from beam_jobs.reading.lines import Reject, Tally
from beam_jobs.reading.work_units import DumpFile, PreparedUnit, Unit, cut_file
from beam_jobs.text import languages, personal_data, splits
from beam_jobs.text.cleaning import clean_text
from beam_jobs.text.word_runs import count_words

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
    ]
)
NO_KEY = "split_by_missing"
"""Note that counts the reviews without what the split is by."""
MAX_RATINGS = 1000
"""Distinct ratings that are counted in a unit."""
MAX_VALUES = 10_000
"""Distinct values of a label in a unit: a column with more holds no classes."""


def make_schema(labels: Sequence[str]) -> pa.Schema:
    """Return the columns of a prepared unit, with those of the user's own labels."""
    return pa.schema(
        [*SCHEMA, *(pa.field(f"{fields.LABEL}{name}", pa.string()) for name in labels)]
    )


@dataclass(frozen=True)
class Preparation:
    """Everything the first pass depends on beside the unit."""

    folder: str
    bounds: tuple[float, ...]  # splits.parse_shares
    seed: int
    sample_share: float  # of the pretrain reviews, for Punkt and to count languages
    repair_run_ons: bool = True
    mask_personal_data: bool = True
    with_titles: bool = True
    min_words: int = 1
    max_characters: int = 20_000
    languages: tuple[str, ...] = ()  # ISO 639-1; none: all
    keep_raw_rejects: bool = False  # the bytes of what cannot be read, reviewers' names and all
    withholds: bool = False  # whether reviews are compared with held-out texts
    withhold_own: bool = False  # whether dev and test reviews are such texts
    near_duplicates: float = 0  # Jaccard similarity from which on; 0: only exact ones
    drops_near_duplicates: bool = True
    labels: tuple[str, ...] = ()  # columns of the user's own classes
    split_by: str = "text"  # or a key of splits.KEY_FIELDS


class Batch:
    """Reviews on their way into columns."""

    def __init__(self, source: str, split_by: str) -> None:
        self.source, self.split_by = source, split_by
        self.titles: list[str] = []
        self.texts: list[str] = []
        """Without their titles: the body alone says whether two reviews are alike, and on which
        side of the split they fall."""
        self.identities: list[str] = []
        self.hashes: list[bytes] = []
        self.ids: list[bytes] = []
        self.ratings: list[float | None] = []
        self.labels: list[tuple[str | None, ...]] = []
        self.items: list[int] = []
        self.keys: list[bytes | None] = []
        """Hashes of what the split is by; None for a review that has it not."""
        self.days: list[int | None] = []

    def add_review(self, review: fields.Review, title: str, text: str) -> None:
        self.titles.append(title)
        self.texts.append(text)
        self.identities.append(
            f"{self.source}\x1f{review.item_id}\x1f{review.user_id}\x1f{review.timestamp}\x1f"
        )
        self.ratings.append(review.rating[0] if review.rating else None)
        self.labels.append(review.labels)
        item = hash_identifier(review.item_id)
        self.items.append(int.from_bytes(item[:8]) if item else 0)
        by = self.split_by
        self.keys.append(hash_identifier(review.user_id) if by == "user" else item)
        self.days.append(parse_day(review.timestamp) if by == "time" else None)

    def assign_splits(
        self, preparation: Preparation, cut_offs: tuple[int, int] | None
    ) -> np.ndarray:
        """Return the side of each review, int8; without what the split is by it is by the text."""
        by, hashes = preparation.split_by, self.hashes
        bounds, seed = preparation.bounds, preparation.seed
        if cut_offs:
            return splits.assign_by_day(self.days, cut_offs, b"".join(hashes), bounds, seed)
        if by != "text":
            hashes = [key or text for key, text in zip(self.keys, hashes, strict=True)]
        return splits.assign_splits(b"".join(hashes), bounds, seed)

    def count_missing(self) -> int:
        """Count the reviews without what the split is by."""
        if self.split_by == "text":
            return 0
        return (self.days if self.split_by == "time" else self.keys).count(None)

    def compute_hashes(self) -> None:
        """Hash the texts as they are now, and what identifies each review."""
        self.hashes = [exact.hash_text(text) for text in self.texts]
        self.ids = [
            xxhash.xxh3_128_digest((identity + text).encode("utf-8", "surrogatepass"))
            for identity, text in zip(self.identities, self.texts, strict=True)
        ]

    def drop_rows(self, dropped: np.ndarray) -> None:
        """Remove the reviews marked in `dropped`."""
        if dropped.any():
            stays = np.flatnonzero(~dropped).tolist()
            columns = "titles texts hashes ids ratings labels items keys days"
            for name in columns.split():
                column = getattr(self, name)
                setattr(self, name, [column[i] for i in stays])

    def to_table(self, sides: np.ndarray, runs: np.ndarray, labels: Sequence[str]) -> pa.Table:
        columns = [
            build_binary_array(b"".join(self.ids)),
            build_binary_array(b"".join(self.hashes)),
            pa.array(self.ratings, pa.float64()),
            pa.array(sides),
            pa.array(map(join_title, self.titles, self.texts), pa.string()),
            pa.array(map(len, self.titles), pa.int32()),
            pa.array(runs),
            pa.array(self.items, pa.uint64()),
            *(pa.array([row[i] for row in self.labels], pa.string()) for i in range(len(labels))),
        ]
        return pa.Table.from_arrays(columns, schema=make_schema(labels))

    def list_rest(self) -> list[str]:
        """Return of each review what is kept besides its text."""
        columns = zip(self.titles, self.ratings, self.labels, strict=True)
        return [f"{title}\x1f{rating}\x1f{labels}" for title, rating, labels in columns]


def hash_identifier(value: Any) -> bytes | None:
    """Return 16 bytes for a product or user, as text, None for none: 1 and "1" are one."""
    if value is None or value != value:  # NaN
        return None
    text = str(value).strip()
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")) if text else None


def make_title(title: Any, text: str, repair_run_ons: bool, max_characters: int) -> str:
    """Return a review's title as a sentence, or "" if it has none or repeats how the text begins.

    `text` is clean. A title that ends in no punctuation gets a full stop.
    """
    if not isinstance(title, str) or not title or len(title) > max_characters:
        return ""
    title = clean_text(title, repair_run_ons)
    begin = title.rstrip("….")
    is_repeated = text[: len(begin)].casefold() == begin.casefold()
    if not begin or (is_repeated and not text[len(begin) : len(begin) + 1].isalnum()):
        return ""
    ends = unicodedata.category(title[-1]).startswith("P")
    return title if ends else f"{title}."


def join_title(title: str, text: str) -> str:
    """Return what a classifier reads: the sentence that `make_title` returned, and the text."""
    return f"{title} {text}" if title else text


def build_binary_array(values: bytes) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(values) // 16, [None, pa.py_buffer(values)]
    )


def count_days(unit: Unit, preparation: Preparation) -> dict[int, int]:
    """Return how many reviews of a unit each day has, unless an earlier run has counted them."""
    path = storage.join_path(preparation.folder, f"{unit.name}.days")
    if not storage.exists(path):
        read_review = fields.make_review_reader(dict(unit.file.layout.mapping), Counter())
        days: Counter[int] = Counter()
        for item in work_units.read_records(unit, Tally()):
            day = None if isinstance(item, Reject) else parse_day(read_review(item[1]).timestamp)
            days.update([] if day is None else [day])
        storage.write_json(path, days)
    return {int(day): n for day, n in json.loads(storage.read_bytes(path)).items()}


def add_days(counts: Iterable[Mapping[int, int]]) -> Counter[int]:
    """Return how many reviews of several units each day has."""
    total: Counter[int] = Counter()
    for days in counts:
        total.update(days)
    return total


def find_cut_offs(
    days: Mapping[int, int], preparation: Preparation, failed: str
) -> tuple[int, int]:
    """Return the first days of dev and test, by the days of all units; raise JobFailed if a unit
    failed, without whose days they would be others.
    """
    check_failed(failed)
    if not days:
        raise UserError(f"--split-by time: no review has a date that can be read; {FORMS}")
    return splits.find_cut_offs(days, preparation.bounds)


def cut_into_units(file: DumpFile, size: int, folder: str, failed: str) -> Iterator[Unit]:
    """Cut a file into units; why that fails every time is written to the folder `failed`."""
    for units in attempt(partial(cut_file, file, size, folder), file.number, file.name, failed):
        yield from units


def count_unit_days(unit: Unit, preparation: Preparation, failed: str) -> Iterator[dict[int, int]]:
    """Count the days of a unit; why that fails every time is written to the folder `failed`."""
    return attempt(partial(count_days, unit, preparation), unit.name, unit.file.name, failed)


def prepare_units(
    unit: Unit, preparation: Preparation, failed: str, cut_offs: tuple[int, int] | None = None
) -> Iterator[PreparedUnit]:
    """Prepare and count a unit; why one fails every time is written to the folder `failed`."""
    work = partial(prepare_unit, unit, preparation, cut_offs)
    for done in attempt(work, unit.name, unit.file.name, failed):
        add_to_counters({"read": done.read, "bytes": done.bytes}, done.dropped)
        yield done


def prepare_unit(
    unit: Unit, preparation: Preparation, cut_offs: tuple[int, int] | None = None
) -> PreparedUnit:
    """Prepare a unit unless an earlier run has; `cut_offs` are the first days of dev and test,
    where the split is by time.
    """
    name = storage.join_path(preparation.folder, unit.name)
    if not storage.exists(f"{name}.json"):
        _write_unit(unit, preparation, name, cut_offs)
    give_memory_back()
    return PreparedUnit(**json.loads(storage.read_bytes(f"{name}.json")))


def _write_unit(
    unit: Unit, preparation: Preparation, name: str, cut_offs: tuple[int, int] | None
) -> None:
    reader = UnitReader(unit, preparation, cut_offs)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        storage.atomic_path(f"{name}.arrow") as path,
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, make_schema(preparation.labels), options=options) as writer,
    ):
        for table in reader.read_tables():
            writer.write_table(table)
    keys = np.concatenate(reader.keys) if reader.keys else np.empty(0, np.uint64)
    packed = exact.pack_rows(b"".join(reader.hashes), keys)
    starts = dict.fromkeys(buckets.KINDS, buckets.find_starts(np.empty(0, np.uint64)))
    starts["hashes"] = buckets.find_starts(packed["high"].astype(np.uint64))
    storage.write_bytes(f"{name}.hashes", packed.tobytes())
    if preparation.near_duplicates:
        signatures = np.concatenate([near.compute_signatures([]), *reader.signatures])
        storage.write_bytes(f"{name}.signatures", signatures.tobytes())
        bands = buckets.BucketedRows(near.BAND)
        for rows in near.list_band_rows(signatures, packed, preparation.near_duplicates):
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
        dump=unit.file.dump,
        file=unit.file.name,
        source=unit.file.source,
        read=reader.read,
        lines=reader.tally.lines,
        bytes=reader.tally.bytes,
        dropped=dict(sorted(reader.dropped.items())),
        notes=dict(sorted(reader.tally.notes.items())),
        ratings=stars.encode_ratings(reader.ratings),
        held_out_runs=int(starts["heldout"][-1]),
    )
    storage.write_json(f"{name}.json", asdict(counts))


class UnitReader:
    """Reads one unit once and counts what it drops."""

    def __init__(
        self, unit: Unit, preparation: Preparation, cut_offs: tuple[int, int] | None
    ) -> None:
        self.unit, self.preparation, self.cut_offs = unit, preparation, cut_offs
        self.read = 0
        self.tally = Tally()
        self.dropped: Counter[str] = Counter()
        self.hashes: list[bytes] = []
        self.keys: list[np.ndarray] = []
        self.signatures: list[np.ndarray] = []
        self.runs = held_out.RunHasher() if preparation.withholds else None
        self.rejects: list[str] = []
        self.sample: list[tuple[str, str]] = []
        self.ratings: Counter[tuple[float, float]] = Counter()
        self.values: list[set[str | None]] = [set() for _ in preparation.labels]

    def read_tables(self) -> Iterator[pa.Table]:
        by = self.preparation.split_by
        batch, characters = Batch(self.unit.file.source, by), 0
        for review in self.read_reviews():
            text = self.clean_text(review.text)
            if text is not None:
                title = ""
                if self.preparation.with_titles:
                    longest = self.preparation.max_characters
                    title = make_title(review.title, text, self.preparation.repair_run_ons, longest)
                batch.add_review(review, title, text)
                characters += len(text)
                if len(batch.texts) == BATCH_REVIEWS or characters > BATCH_CHARACTERS:
                    yield self.finish_batch(batch)
                    batch, characters = Batch(self.unit.file.source, by), 0
        if batch.texts:
            yield self.finish_batch(batch)

    def read_reviews(self) -> Iterator[fields.Review]:
        mapping = dict(self.unit.file.layout.mapping)
        read_fields = fields.make_review_reader(mapping, self.tally.notes, self.preparation.labels)
        for item in work_units.read_records(self.unit, self.tally):
            self.read += 1
            if isinstance(item, Reject):
                self.record_reject(item)
                continue
            review = read_fields(item[1])
            if review.rating is not None:
                self.count_rating(review.rating)
            elif "stars" in mapping:
                self.tally.notes["stars_unknown"] += 1
            yield review

    def count_rating(self, rating: tuple[float, float]) -> None:
        """Count a rating; of more than MAX_RATINGS distinct ones only those that came first, since
        a column that has so many is on no scale.
        """
        if rating in self.ratings or len(self.ratings) < MAX_RATINGS:
            self.ratings[rating] += 1
        else:
            self.tally.notes["stars_unknown"] += 1

    def clean_text(self, text: Any) -> str | None:
        """Return the clean text, or None after counting why there is none."""
        if not isinstance(text, str):
            self.dropped["no text" if text is None else "text is not a string"] += 1
            return None
        if len(text) > MAX_RAW_EXPANSION * self.preparation.max_characters:
            self.dropped["too long"] += 1
            return None
        text = clean_text(text, self.preparation.repair_run_ons)
        if not text:
            self.dropped["empty text"] += 1
        elif len(text) > self.preparation.max_characters:
            self.dropped["too long"] += 1
        elif self.preparation.min_words > 1 and count_words(text) < self.preparation.min_words:
            self.dropped["too short"] += 1
        else:
            return text
        return None

    def record_reject(self, item: Reject) -> None:
        """Note where the record is, and its bytes, which name reviewers, only if wanted."""
        self.dropped[item.reason] += 1
        entry = {
            "file": self.unit.file.name,
            "line": item.line,
            "reason": item.reason,
            "bytes": item.size,
        }
        entry["sha256"] = hash_bytes(item.raw)
        if self.preparation.keep_raw_rejects:
            entry["raw_base64"] = base64.b64encode(item.raw).decode()
        self.rejects.append(json.dumps(entry) + "\n")

    def finish_batch(self, batch: Batch) -> pa.Table:
        """Drop what only shows in many texts at once, then return the columns of the rest."""
        preparation = self.preparation
        if preparation.mask_personal_data:
            self.mask_personal_data(batch)
        batch.compute_hashes()
        if preparation.languages:
            self.drop_rows(
                batch,
                languages.find_foreign_texts(batch.texts, preparation.languages),
                "other language",
            )
        hashes = b"".join(batch.hashes)
        sides = batch.assign_splits(preparation, self.cut_offs)
        if missing := batch.count_missing():
            self.tally.notes[NO_KEY] += missing
        if preparation.near_duplicates:
            self.signatures.append(near.compute_signatures(batch.texts))
        runs = np.zeros(len(sides), np.uint32)
        if self.runs:
            is_held_out = held_out.mark_held_out(sides) & preparation.withhold_own
            runs = self.runs.add_texts(batch.texts, is_held_out)
        self.hashes.extend(batch.hashes)
        chosen = np.frombuffer(hashes, dtype=">u4").reshape(-1, 4)[:, 2] < int(
            preparation.sample_share * (1 << 32)
        )
        chosen &= sides == splits.SPLITS.index("pretrain")
        self.sample.extend((batch.hashes[i].hex(), batch.texts[i]) for i in np.flatnonzero(chosen))
        for i, (column, values) in enumerate(zip(preparation.labels, self.values, strict=True)):
            values.update(row[i] for row in batch.labels)
            if len(values) > MAX_VALUES:
                raise UserError(
                    f"--label {column}: more than {MAX_VALUES:,} different values in "
                    f"{self.unit.file.name}; name a column of classes, of which there are 2 to 200"
                )
        table = batch.to_table(sides, runs, preparation.labels)
        self.keys.append(exact.compute_keys(b"".join(batch.ids), batch.list_rest()))
        return table

    def mask_personal_data(self, batch: Batch) -> None:
        for texts in (batch.titles, batch.texts):
            for i in personal_data.find_suspects(texts):
                texts[i], emails, phones = personal_data.mask_personal_data(texts[i])
                if emails or phones:
                    self.tally.notes["emails_masked"] += emails
                    self.tally.notes["phones_masked"] += phones

    def drop_rows(self, batch: Batch, dropped: np.ndarray, reason: str) -> None:
        if dropped.any():
            self.dropped[reason] += int(dropped.sum())
            batch.drop_rows(dropped)
