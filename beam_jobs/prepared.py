"""First pass over a unit: read, clean, hash. Leaves the unit's texts, packed hashes, rejects and Punkt sample.

prepared/0000-00000.arrow    one row a review (Arrow IPC, lz4): what the corpus will hold, the text in one piece
prepared/0000-00000.hashes   deduplication.PACKED, sorted by text hash
prepared/0000-00000.bands    near_duplicates.py, if asked for
prepared/0000-00000.rejects  JSON lines; lines count from the unit's start, the second pass knows where that is
prepared/0000-00000.sample   JSON list of texts for Punkt
prepared/0000-00000.json     counts; written last: the unit is done if and only if it is there
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from beam_jobs import deduplication, languages, near_duplicates, personal_data, splits, storage, withholding, work_units
from beam_jobs.cleaning import Cleaning, clean
from beam_jobs.command import UserMistake
from beam_jobs.formats import detection, fields, parquet_records
from beam_jobs.formats.lines import Rejected, Tally, rejected
from beam_jobs.formats.marked_text import OtherLabel
from beam_jobs.work_units import Unit

BATCH_REVIEWS = 4096
RAW_CHARACTERS = 10  # times those that a text may have: what is so long before it is cleaned is not looked at
SCHEMA = pa.schema(
    [
        pa.field("review_id", pa.binary(16)),
        pa.field("text_hash", pa.binary(16)),
        pa.field("stars", pa.int8()),
        pa.field("verified", pa.bool_()),
        pa.field("split", pa.int8()),
        pa.field("text", pa.string()),
    ]
)


@dataclass(frozen=True)
class Preparation:
    """Everything the first pass depends on beside the unit."""

    folder: str
    bounds: tuple[float, ...]  # splits.parse_shares
    seed: int
    sample_share: float  # of the pretrain reviews, for Punkt
    cleaning: Cleaning = field(default_factory=Cleaning)
    mask_personal_data: bool = True
    min_words: int = 1
    max_characters: int = 20_000
    languages: tuple[str, ...] = ()  # ISO 639-1; none: all
    withheld: str = ""  # path of the evaluation texts' hashes
    keep_raw_rejects: bool = False  # the bytes of what cannot be read, reviewers' names and all
    near_duplicates: float = 0  # Jaccard similarity from which on; 0: only exact ones


class Batch:
    """Reviews on their way into columns."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.texts: list[str] = []
        self.hashes: list[bytes] = []
        self.ids: list[bytes] = []
        self.stars: list[int | None] = []
        self.verified: list[bool | None] = []

    def add(self, review: fields.Review, text: str) -> None:
        identity = f"{self.source}\x1f{review.item_id}\x1f{review.user_id}\x1f{review.timestamp}\x1f{text}"
        raw = identity.encode("utf-8", "surrogatepass")
        self.texts.append(text)
        self.hashes.append(withholding.hash_of(text))
        self.ids.append(xxhash.xxh3_128_digest(raw))
        self.stars.append(review.stars)
        self.verified.append(review.verified)

    def without(self, gone: np.ndarray) -> None:
        """Removes the reviews marked in `gone`."""
        if gone.any():
            stays = np.flatnonzero(~gone).tolist()
            for name in ("texts", "hashes", "ids", "stars", "verified"):
                column = getattr(self, name)
                setattr(self, name, [column[i] for i in stays])

    def table(self, sides: np.ndarray) -> pa.Table:
        columns = [
            fixed(b"".join(self.ids)),
            fixed(b"".join(self.hashes)),
            pa.array(self.stars, pa.int8()),
            pa.array(self.verified, pa.bool_()),
            pa.array(sides),
            pa.array(self.texts, pa.string()),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def fixed(values: bytes) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values) // 16, [None, pa.py_buffer(values)])


def prepare(unit: Unit, preparation: Preparation) -> dict[str, Any]:
    """Does a unit unless an earlier run has done it; returns its counts."""
    name = storage.join(preparation.folder, unit.name)
    if not storage.exists(f"{name}.json"):
        _prepare(unit, preparation, name)
    if unit.path != unit.file.path:
        storage.remove(unit.path)
    return json.loads(storage.read_bytes(f"{name}.json"))


def _prepare(unit: Unit, preparation: Preparation, name: str) -> None:
    reading = Reading(unit, preparation)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        storage.atomic_path(f"{name}.arrow") as path,
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, SCHEMA, options=options) as writer,
    ):
        for table in reading.tables():
            writer.write_table(table)
    keys = np.concatenate(reading.keys) if reading.keys else np.empty(0, np.uint64)
    packed = deduplication.pack(b"".join(reading.hashes), keys)
    storage.write_bytes(f"{name}.hashes", packed.tobytes())
    if preparation.near_duplicates:
        with storage.atomic_path(f"{name}.bands") as path, open(path, "wb") as file:
            np.save(file, near_duplicates.join(reading.signatures))
    storage.write_bytes(f"{name}.rejects", "".join(reading.rejects).encode())
    storage.write_bytes(f"{name}.sample", json.dumps(reading.sample).encode())
    storage.write_bytes(
        f"{name}.json", json.dumps(reading.counts() | {"offsets": deduplication.offsets(packed)}).encode()
    )


class Reading:
    """One pass over one unit, and what it counts."""

    def __init__(self, unit: Unit, preparation: Preparation) -> None:
        self.unit, self.preparation = unit, preparation
        self.read = 0
        self.tally = Tally()
        self.dropped: Counter[str] = Counter()
        self.hashes: list[bytes] = []
        self.keys: list[np.ndarray] = []
        self.signatures: list[np.ndarray] = []
        self.rejects: list[str] = []
        self.sample: list[tuple[str, str]] = []

    def counts(self) -> dict[str, Any]:
        return {
            "unit": self.unit.name,
            "file": self.unit.file.name,
            "dump": self.unit.file.dump,
            "source": self.unit.file.source,
            "read": self.read,
            "lines": self.tally.lines,
            "prepared": len(self.hashes),
            "dropped": dict(sorted(self.dropped.items())),
            "notes": dict(sorted(self.tally.notes.items())),
        }

    def tables(self) -> Iterator[pa.Table]:
        batch = Batch(self.unit.file.source)
        for review in self.reviews():
            text = self.accepted(review.text)
            if text is not None:
                batch.add(review, text)
                if len(batch.texts) == BATCH_REVIEWS:
                    yield self.finished(batch)
                    batch = Batch(self.unit.file.source)
        if batch.texts:
            yield self.finished(batch)

    def reviews(self) -> Iterator[fields.Review]:
        mapping = dict(self.unit.file.layout.mapping)
        read_fields = fields.reader_of(mapping)
        for item in self.items():
            self.read += 1
            if isinstance(item, Rejected):
                self.reject(item)
                continue
            review = read_fields(item[1])
            if review.stars is None and "stars" in mapping:
                self.tally.notes["stars_unknown"] += 1
            yield review

    def items(self) -> Iterator[tuple[int, dict[str, Any]] | Rejected]:
        found = self.unit.file.layout
        if found.name == "parquet":
            with work_units.open_row_groups(self.unit) as file:
                yield from parquet_records.read(file, found, self.tally, self.unit.start, self.unit.stop)
            return
        with work_units.open_unit(self.unit) as stream:
            try:
                yield from detection.read(stream, found, self.tally, header=self.unit.piece == 0)
            except OtherLabel as error:
                raise UserMistake(f"{self.unit.file.name} {error}") from None
            if stream.damage:
                self.tally.notes["damaged_files"] += 1
                yield rejected(self.tally.lines, stream.damage, b"")

    def accepted(self, text: Any) -> str | None:
        """The clean text, or None and a count of the reason."""
        if not isinstance(text, str):
            self.dropped["no text" if text is None else "text is not a string"] += 1
            return None
        if len(text) > RAW_CHARACTERS * self.preparation.max_characters:
            self.dropped["too long"] += 1
            return None
        text = clean(text, self.preparation.cleaning)
        if not text:
            self.dropped["empty text"] += 1
        elif len(text) > self.preparation.max_characters:
            self.dropped["too long"] += 1
        elif self.preparation.min_words > 1 and text.count(" ") + 1 < self.preparation.min_words:
            self.dropped["too short"] += 1
        elif self.preparation.mask_personal_data:
            text, emails, phones = personal_data.mask(text)
            if emails or phones:
                self.tally.notes["emails_masked"] += emails
                self.tally.notes["phones_masked"] += phones
            return text
        else:
            return text
        return None

    def reject(self, item: Rejected) -> None:
        """Enough to find the record again; what stands in it, names of reviewers too, only if that is asked for."""
        self.dropped[item.reason] += 1
        entry = {"file": self.unit.file.name, "line": item.line, "reason": item.reason, "bytes": item.size}
        entry["sha256"] = hashlib.sha256(item.raw).hexdigest()
        if self.preparation.keep_raw_rejects:
            entry["raw_base64"] = base64.b64encode(item.raw).decode()
        self.rejects.append(json.dumps(entry) + "\n")

    def finished(self, batch: Batch) -> pa.Table:
        """Filters that look at many texts at once, then the columns."""
        preparation = self.preparation
        if preparation.languages:
            self.drop(batch, languages.foreign(batch.texts, preparation.languages), "other language")
        if preparation.withheld:
            withheld = withholding.load(preparation.withheld)
            self.drop(batch, np.array([h in withheld.exact for h in batch.hashes]), "withheld (exact)")
            if batch.texts:
                self.drop(batch, withheld.near(batch.texts), "withheld (near)")
        hashes = b"".join(batch.hashes)
        sides = splits.sides(hashes, preparation.bounds, preparation.seed)
        if preparation.near_duplicates:
            self.signatures.append(near_duplicates.signatures(batch.texts))
        self.hashes.extend(batch.hashes)
        chosen = np.frombuffer(hashes, dtype=">u4").reshape(-1, 4)[:, 2] < int(preparation.sample_share * (1 << 32))
        chosen &= sides == splits.SPLITS.index("pretrain")
        self.sample.extend((batch.hashes[i].hex(), batch.texts[i]) for i in np.flatnonzero(chosen))
        table = batch.table(sides)
        self.keys.append(deduplication.keys_of(b"".join(batch.ids), table["stars"], table["verified"]))
        return table

    def drop(self, batch: Batch, gone: np.ndarray, reason: str) -> None:
        if gone.any():
            self.dropped[reason] += int(gone.sum())
            batch.without(gone)
