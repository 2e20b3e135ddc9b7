"""First pass over a unit: read, clean, hash. Leaves the unit's texts, packed hashes, rejects and Punkt sample.

prepared/00000.arrow      one row a review (Arrow IPC, lz4): what the corpus will hold, with the text in one piece
prepared/00000.npy        deduplication.PACKED, sorted by text hash
prepared/00000.rejects    JSON lines; line numbers count from the unit's start, the second pass knows where that is
prepared/00000.sample     JSON list of texts for Punkt
prepared/00000.json       counts; written last: the unit is done if and only if it is there
"""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from beam_jobs import deduplication, splits, storage
from beam_jobs.cleaning import Cleaning, clean
from beam_jobs.formats import fields, json_lines
from beam_jobs.formats.lines import Rejected, Tally
from beam_jobs.work_units import Unit, open_unit

BATCH_REVIEWS = 8192
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
    bounds: tuple[float, ...]
    seed: int
    cleaning: Cleaning
    min_words: int
    max_characters: int
    longest_record: int  # bytes
    sample_share: float  # of the pretrain reviews, for Punkt


class Unreadable(Exception):
    """The rest of a unit cannot be read."""


class Batch:
    """Reviews on their way into columns."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.hashes: list[bytes] = []
        self.ids: list[bytes] = []
        self.keys: list[int] = []
        self.stars: list[int | None] = []
        self.verified: list[bool | None] = []

    def add(self, review: fields.Review, text: str, source: str) -> None:
        identity = "\x1f".join((source, str(review.item_id), str(review.user_id), str(review.timestamp), text))
        raw = identity.encode("utf-8", "surrogatepass")
        self.texts.append(text)
        self.hashes.append(xxhash.xxh3_128_digest(folded(text)))
        self.ids.append(xxhash.xxh3_128_digest(raw))
        self.keys.append(xxhash.xxh3_64_intdigest(b"%s\x1f%r\x1f%r" % (raw, review.stars, review.verified)))
        self.stars.append(review.stars)
        self.verified.append(review.verified)

    def table(self, preparation: Preparation) -> pa.Table:
        hashes = b"".join(self.hashes)
        columns = [
            fixed(b"".join(self.ids)),
            fixed(hashes),
            pa.array(self.stars, pa.int8()),
            pa.array(self.verified, pa.bool_()),
            pa.array(splits.sides(hashes, preparation.bounds, preparation.seed)),
            pa.array(self.texts, pa.string()),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def fixed(values: bytes) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values) // 16, [None, pa.py_buffer(values)])


def folded(text: str) -> bytes:
    """The text that decides equality: `text` is already folded in white space."""
    return text.casefold().encode()


def prepare(unit: Unit, preparation: Preparation) -> dict[str, Any]:
    """Does a unit unless an earlier run has done it; returns its counts."""
    name = storage.join(preparation.folder, f"{unit.index:05d}")
    if storage.exists(f"{name}.json"):
        return json.loads(storage.read_bytes(f"{name}.json"))
    pass_ = Pass(unit, preparation)
    with storage.atomic_path(f"{name}.arrow") as path, pa.OSFile(str(path), "wb") as sink:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(sink, SCHEMA, options=options) as writer:
            for table in pass_.tables():
                writer.write_table(table)
    packed = deduplication.pack(b"".join(pass_.hashes), pass_.keys)
    with storage.atomic_path(f"{name}.npy") as path, open(path, "wb") as file:
        np.save(file, packed)
    storage.write_bytes(f"{name}.rejects", "".join(pass_.rejects).encode())
    storage.write_bytes(f"{name}.sample", json.dumps(pass_.sample).encode())
    counts = pass_.counts()
    storage.write_bytes(f"{name}.json", json.dumps(counts).encode())
    return counts


class Pass:
    """One pass over one unit."""

    def __init__(self, unit: Unit, preparation: Preparation) -> None:
        self.unit, self.preparation = unit, preparation
        self.read = 0
        self.tally = Tally()
        self.dropped: Counter[str] = Counter()
        self.hashes: list[bytes] = []
        self.keys: list[int] = []
        self.rejects: list[str] = []
        self.sample: list[tuple[str, str]] = []

    def counts(self) -> dict[str, Any]:
        return {
            "unit": self.unit.index,
            "file": self.unit.file.path,
            "source": self.unit.file.source,
            "read": self.read,
            "lines": self.tally.lines,
            "prepared": len(self.keys),
            "dropped": dict(sorted(self.dropped.items())),
            "notes": dict(sorted(self.tally.notes.items())),
        }

    def tables(self) -> Iterator[pa.Table]:
        batch = Batch()
        for review in self.reviews():
            text = self.accept(review.text)
            if text is None:
                continue
            batch.add(review, text, self.unit.file.source)
            if len(batch.texts) == BATCH_REVIEWS:
                yield self.close(batch)
                batch = Batch()
        if batch.texts:
            yield self.close(batch)

    def reviews(self) -> Iterator[fields.Review]:
        read_fields = fields.reader_of(self.unit.file.mapping)
        stars_column = self.unit.file.mapping.get("stars")
        with open_unit(self.unit) as stream:
            for item in json_lines.read(stream, self.preparation.longest_record, self.tally):
                self.read += 1
                if isinstance(item, Rejected):
                    self.reject(item)
                    continue
                review = read_fields(item[1])
                if review.stars is None and stars_column:
                    self.tally.notes["stars_unknown"] += 1
                yield review

    def accept(self, text: Any) -> str | None:
        """The clean text, or None and a count of the reason."""
        if not isinstance(text, str):
            self.dropped["no text" if text is None else "text is not a string"] += 1
            return None
        text = clean(text, self.preparation.cleaning)
        if not text:
            self.dropped["empty text"] += 1
        elif len(text) > self.preparation.max_characters:
            self.dropped["too long"] += 1
        elif self.preparation.min_words > 1 and text.count(" ") + 1 < self.preparation.min_words:
            self.dropped["too short"] += 1
        else:
            return text
        return None

    def reject(self, rejected: Rejected) -> None:
        self.dropped[rejected.reason] += 1
        entry = {"file": self.unit.file.path, "line": rejected.line, "reason": rejected.reason}
        entry |= {"bytes": rejected.size, "raw_base64": base64.b64encode(rejected.raw).decode()}
        self.rejects.append(json.dumps(entry) + "\n")

    def close(self, batch: Batch) -> pa.Table:
        table = batch.table(self.preparation)
        self.hashes.extend(batch.hashes)
        self.keys.extend(batch.keys)
        limit = int(self.preparation.sample_share * (1 << 32))
        chosen = np.frombuffer(b"".join(batch.hashes), dtype=">u4").reshape(-1, 4)[:, 2] < limit
        chosen &= table.column("split").to_numpy() == splits.SPLITS.index("pretrain")
        self.sample.extend((batch.hashes[i].hex(), batch.texts[i]) for i in np.flatnonzero(chosen))
        return table
