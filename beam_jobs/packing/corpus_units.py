"""Plans which rows of a corpus make up each shard.

Units follow from the corpus alone, never from the number of workers, so that the shards are the
same on any runner. A unit is a run of row groups over one or more files; small files are joined, so
that packing has enough to choose from.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes, hash_stream

TARGET_UNITS = 64  # enough to keep many workers evenly busy, between the two bounds
MIN_UNIT_ROWS = 4096  # fewer reviews leave packing too little to choose from
MAX_UNIT_ROWS = 1 << 17  # more reviews take long to repeat when a worker dies
WINDOW_ROWS = 8_192
"""Reviews tokenized and packed at a time; twice as many fill as well and take 75 MB more."""


@dataclass(frozen=True)
class RowGroups:
    """Row groups `first` to `last` (exclusive) of a corpus file."""

    path: str
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class CorpusUnit:
    """One shard's worth of corpus; a shard that bears its `digest` was made from these rows."""

    number: int
    parts: tuple[RowGroups, ...]
    digest: str

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def read_windows(self, split: str) -> Iterator[pa.ListArray]:
        """Yield the sentences of one split's reviews, about WINDOW_ROWS reviews at once."""
        waiting: list[pa.ListArray] = []
        for part in self.parts:
            with storage.open_bytes(part.path) as file:
                groups, columns = list(range(part.first, part.last)), ["split", "sentences"]
                for batch in pq.ParquetFile(file).iter_batches(
                    WINDOW_ROWS // 4, row_groups=groups, columns=columns
                ):
                    chosen = pc.equal(batch["split"].cast(pa.string()), split)
                    waiting.append(batch["sentences"].filter(chosen))
                    if sum(map(len, waiting)) >= WINDOW_ROWS:
                        yield pa.concat_arrays(waiting)
                        waiting = []
        if sum(map(len, waiting)):
            yield pa.concat_arrays(waiting)


def plan_corpus_units(corpus: str) -> list[CorpusUnit]:
    """Return all units of a corpus folder, in the order of its files."""
    names = [
        n for n in storage.list_names(corpus) if n.startswith("corpus-") and n.endswith(".parquet")
    ]
    if not names:
        raise UserError(
            f"no corpus-*.parquet in {corpus}; give the folder that corpus_job wrote", "corpus"
        )
    if not storage.exists(storage.join_path(corpus, "corpus.json")):
        raise UserError(
            f"no corpus.json in {corpus}: corpus_job has not ended; run it again", "corpus"
        )
    groups, digests = [], {}
    for name in names:
        path = storage.join_path(corpus, name)
        metadata, digests[path] = read_metadata(path)
        groups += [
            RowGroups(path, i, i + 1, metadata.row_group(i).num_rows)
            for i in range(metadata.num_row_groups)
        ]
    wanted = min(max(sum(g.rows for g in groups) // TARGET_UNITS, MIN_UNIT_ROWS), MAX_UNIT_ROWS)
    units = []
    for number, parts in enumerate(group_row_groups(groups, wanted)):
        made_of = "\n".join(f"{digests[part.path]} {part.first} {part.last}" for part in parts)
        units.append(CorpusUnit(number, parts, hash_bytes(made_of.encode())))
    return units


def sample_units(units: list[CorpusUnit], documents: int | None, wanted: int) -> list[CorpusUnit]:
    """Return the first units, which hold about `wanted` reviews of a split that has so many
    `documents` in all: hashes spread them evenly. All units where nobody counted them.
    """
    if not documents:
        return units if documents is None else units[:1]
    needed = sum(unit.rows for unit in units) * wanted / documents
    before = itertools.accumulate((unit.rows for unit in units), initial=0)
    return [unit for unit, rows in zip(units, before, strict=False) if rows < needed]


def read_metadata(path: str) -> tuple[pq.FileMetaData, str]:
    """Return a Parquet file's metadata and the SHA-256 of its footer, which bounds every column."""
    try:
        with storage.open_bytes(path) as file:
            metadata = pq.read_metadata(file)
            file.seek(-(metadata.serialized_size + 8), 2)
            return metadata, hash_stream(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); run corpus_job again", "corpus"
        ) from None


def group_row_groups(groups: list[RowGroups], rows_wanted: int) -> Iterator[tuple[RowGroups, ...]]:
    """Yield row groups in runs of at least `rows_wanted` rows; neighbours become one part."""
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
