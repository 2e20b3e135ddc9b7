"""Units of work of the shards job: which rows of the corpus make up each shard.

Units follow from the corpus alone, never from the number of workers, so that the shards are the same on any runner. A
unit is a run of row groups over one or more files; small files are joined, so that packing has enough to choose from.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs import storage
from beam_jobs.command import UserMistake

UNITS_WANTED = 64  # enough to keep many workers evenly busy …
FEWEST_ROWS, MOST_ROWS = 4096, 1 << 17  # … unless the corpus is small, or a unit became long to repeat
EVALUATED = ("dev", "test")  # the splits that models are chosen and judged by
WINDOW_ROWS = 8_192  # reviews tokenized and packed at a time; twice as many fill as well and take 75 MB more


@dataclass(frozen=True)
class RowGroups:
    """Row groups `first` to `last` (exclusive) of a corpus file."""

    path: str
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class CorpusUnit:
    """One shard's worth of corpus. `digest` tells whether a shard found in the output was made from these rows."""

    rows_are: ClassVar[str] = "reviews"
    number: int
    parts: tuple[RowGroups, ...]
    digest: str

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def windows(self, split: str) -> Iterator[pa.ListArray]:
        """The sentences of the unit's reviews of one split, about WINDOW_ROWS reviews at a time, across files."""
        waiting: list[pa.ListArray] = []
        for batch in read_batches(self):
            chosen = pc.equal(batch["split"].cast(pa.string()), split)
            waiting.append(batch["sentences"].filter(chosen))
            if sum(map(len, waiting)) >= WINDOW_ROWS:
                yield pa.concat_arrays(waiting)
                waiting = []
        if sum(map(len, waiting)):
            yield pa.concat_arrays(waiting)


def plan(corpus: str, option: str = "--corpus") -> list[CorpusUnit]:
    """All units of a corpus folder, in the order of its files; `option` is how the user gave it."""
    names = [n for n in storage.names_in(corpus) if n.startswith("corpus-") and n.endswith(".parquet")]
    if not names:
        raise UserMistake(f"{option}: no corpus-*.parquet in {corpus}; give the folder that corpus_job wrote")
    if not storage.exists(storage.join(corpus, "corpus.json")):
        raise UserMistake(f"{option}: no corpus.json in {corpus}: corpus_job has not ended; run it again")
    groups, digests = [], {}
    for name in names:
        path = storage.join(corpus, name)
        metadata, digests[path] = look_at(path, option)
        groups += [RowGroups(path, i, i + 1, metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups)]
    wanted = min(max(sum(group.rows for group in groups) // UNITS_WANTED, FEWEST_ROWS), MOST_ROWS)
    return [
        CorpusUnit(number, parts, digest_of(parts, digests)) for number, parts in enumerate(in_runs(groups, wanted))
    ]


def evaluated(corpus: str) -> Iterator[str]:
    """The texts of a corpus's dev and test reviews, as one searches for them: sentences joined by a space."""
    for unit in plan(corpus, "--withhold_corpus"):
        for batch in read_batches(unit):
            chosen = pc.is_in(batch["split"].cast(pa.string()), pa.array(EVALUATED))
            yield from (" ".join(sentences) for sentences in batch["sentences"].filter(chosen).to_pylist())


def look_at(path: str, option: str) -> tuple[pq.FileMetaData, str]:
    """The metadata of a Parquet file and the hash of its last bytes, which hold sizes and bounds of every column."""
    try:
        with storage.open_bytes(path) as file:
            metadata = pq.read_metadata(file)
            file.seek(-(metadata.serialized_size + 8), 2)
            return metadata, hashlib.sha256(file.read()).hexdigest()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserMistake(f"{option}: {path} cannot be read ({error}); run corpus_job again") from None


def in_runs(groups: list[RowGroups], rows_wanted: int) -> Iterator[tuple[RowGroups, ...]]:
    """Row groups in order, in runs of at least `rows_wanted` rows; neighbours in one file become one part."""
    run: list[RowGroups] = []
    for group in groups:
        if run and run[-1].path == group.path:
            run[-1] = RowGroups(group.path, run[-1].first, group.last, run[-1].rows + group.rows)
        else:
            run.append(group)
        if sum(part.rows for part in run) >= rows_wanted:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def digest_of(parts: tuple[RowGroups, ...], digests: dict[str, str]) -> str:
    text = "\n".join(f"{digests[part.path]} {part.first} {part.last}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def read_batches(unit: CorpusUnit) -> Iterator[pa.RecordBatch]:
    for part in unit.parts:
        with storage.open_bytes(part.path) as file:
            yield from pq.ParquetFile(file).iter_batches(
                WINDOW_ROWS // 4, row_groups=list(range(part.first, part.last)), columns=["split", "sentences"]
            )
