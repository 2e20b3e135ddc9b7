"""Parquet files that are either whole or not there, and the schemas of the ones we publish."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.core import storage

KEY = b"amazon_electra"
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 3

CORPUS_SCHEMA = pa.schema(
    [
        pa.field("review_id", pa.binary(16), nullable=False),
        pa.field("text_hash", pa.binary(16), nullable=False),
        pa.field("stars", pa.int8()),
        pa.field("verified", pa.bool_()),
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("split", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("sentences", pa.list_(pa.string()), nullable=False),
    ]
)


def build_shard_schema(vocabulary_size: int) -> pa.Schema:
    """Return the schema of one packed sequence a row.

    Ids have the narrowest type that holds the vocabulary, positions in the sequence are uint16.
    """
    ids = pa.uint16() if vocabulary_size <= 1 << 16 else pa.uint32()
    return pa.schema(
        [
            pa.field("input_ids", pa.list_(ids), nullable=False),
            pa.field("document_starts", pa.list_(pa.uint16()), nullable=False),
            pa.field("sentence_starts", pa.list_(pa.uint16()), nullable=False),
        ]
    )


def write_tables(
    path: str | os.PathLike,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    footer: Callable[[], dict[str, Any]] = dict,
) -> int:
    """Write tables, one row group each, and `footer()`, called last, as JSON under the key
    `amazon_electra`; return the number of rows.

    Nothing but the rows and the footer decides the bytes.
    """
    rows = 0
    with (
        storage.atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            store_schema=True,
            use_dictionary=[
                f.name for f in schema if pa.types.is_dictionary(f.type)
            ],  # others: read in a third the time
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(schema), row_group_size=max(table.num_rows, 1))
            rows += table.num_rows
        writer.add_key_value_metadata({KEY: json.dumps(footer(), sort_keys=True).encode()})
    return rows


def read_footer(path: str | os.PathLike) -> dict[str, Any]:
    """Return what `write_tables` put into the footer; {} for a Parquet file that is not ours."""
    with storage.open_bytes(str(path)) as file:
        return json.loads((pq.read_metadata(file).metadata or {}).get(KEY, b"{}"))
