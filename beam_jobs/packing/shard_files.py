"""The shards of a job: packed from units, known by their footers, removed if they are strays."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from itertools import chain
from typing import Any

import apache_beam as beam
import pyarrow as pa
from tokenizers import Tokenizer

from beam_jobs.core import storage
from beam_jobs.corpus import parquet_files
from beam_jobs.packing.packing import Counts, Tokens, pack_documents
from beam_jobs.packing.plan import Packing, Unit
from beam_jobs.packing.tokenization import WordIds

SHARD_NAME = r"shard-\d{5,}\.parquet"


class PackIntoShards(beam.DoFn):
    """Packs units, with one tokenizer and the words it remembers for all units of a worker."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.word_ids: WordIds | None = None

    def process(self, unit: Unit) -> Iterator[tuple[int, int]]:
        if self.word_ids is None:
            self.word_ids = load_word_ids(self.packing.vocabulary)
        yield unit.number, write_shard(unit, self.packing, self.word_ids).sequences


def load_word_ids(vocabulary: str) -> WordIds:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a worker is one core's worth
    content = storage.read_bytes(storage.join_path(vocabulary, "tokenizer.json"))
    return WordIds(Tokenizer.from_str(content.decode()))


def write_shard(unit: Unit, packing: Packing, word_ids: WordIds) -> Counts:
    """Pack a unit unless its shard is already there; return what the shard holds.

    A unit without any review of the split gives no shard.
    """
    path = packing.shard_path(unit)
    if storage.exists(path):
        return parse_counts(parquet_files.read_footer(path))
    windows = PackedWindows(unit, packing, word_ids)
    first = next(windows.tables, None)
    if first is None:
        return Counts()
    parquet_files.write_tables(
        path,
        parquet_files.build_shard_schema(packing.vocabulary_size),
        chain([first], windows.tables),
        lambda: packing.describe_shard(unit) | asdict(windows.counts),
    )
    return windows.counts


class PackedWindows:
    """The packed windows of a unit, and the counts of those already taken."""

    def __init__(self, unit: Unit, packing: Packing, word_ids: WordIds) -> None:
        self.counts = Counts()
        self.tables = self._pack_windows(unit, packing, word_ids)

    def _pack_windows(self, unit: Unit, packing: Packing, word_ids: WordIds) -> Iterator[pa.Table]:
        schema = parquet_files.build_shard_schema(packing.vocabulary_size)
        specials = word_ids.cls_id, word_ids.sep_id
        for documents in unit.read_windows(packing.split):
            ids, sentence_offsets = word_ids.encode(documents.flatten())
            tokens = Tokens(ids, sentence_offsets, documents.offsets.to_numpy())
            table, counts = pack_documents(tokens, packing.max_length, *specials, schema)
            self.counts += counts
            if table.num_rows:
                yield table


def remove_strays(packing: Packing, units: Sequence[Unit]) -> None:
    """Remove what is not a finished shard of exactly this job: another job's, a killed worker's."""
    expected = {os.path.basename(packing.shard_path(u)): packing.describe_shard(u) for u in units}
    storage.remove_matching(packing.output, rf"\.{SHARD_NAME}(\.\d+)+\.tmp")
    for name in list_shards(packing.output):
        path = storage.join_path(packing.output, name)
        if not is_finished(path, expected.get(name)):
            storage.remove_path(path)


def is_finished(path: str, description: dict[str, Any] | None) -> bool:
    try:
        footer = parquet_files.read_footer(path)
    except pa.ArrowInvalid:
        return False
    return description is not None and description.items() <= footer.items()


def list_shards(output: str) -> list[str]:
    return [name for name in storage.list_names(output) if re.fullmatch(SHARD_NAME, name)]


def parse_counts(footer: dict[str, Any]) -> Counts:
    return Counts(**{field.name: footer[field.name] for field in fields(Counts)})
