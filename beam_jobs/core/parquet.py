"""Parquet files: others' are read within limits, ours are either whole or not there."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.limits import Limits

KEY = b"amazon_electra"
BATCH_ROWS = 4096
STRINGS = {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}
ROW_BYTES = 50  # what a row takes besides its texts


def open_parquet(file: BinaryIO, name: str, limits: Limits) -> pq.ParquetFile:
    """Open a file; UserError where its footer says that it expands too far."""
    source = pq.ParquetFile(file)
    groups = [source.metadata.row_group(i) for i in range(source.num_row_groups)]
    size = sum(group.total_byte_size + group.num_rows * ROW_BYTES for group in groups)
    limits.check_expansion(name, file.seek(0, os.SEEK_END), size)
    return source


def read_batches(
    source: pq.ParquetFile, group: int, columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield rows of a row group with the bytes that the strings of each take, int64."""
    for batch in source.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
        lengths = np.zeros(batch.num_rows, np.int64)
        for column in batch.columns:
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if column.type in STRINGS:
                lengths += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        yield batch, lengths


def read_rows(file: BinaryIO, name: str, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file without their numbers. Raises UserError for a broken file, a record
    that is too long, and a file that expands too far.
    """
    try:
        source = open_parquet(file, name, limits)
        columns = [one.name for one in source.schema_arrow if not pa.types.is_primitive(one.type)]
        for group in range(source.num_row_groups if columns else 0):
            for rows, lengths in read_batches(source, group, columns):
                if (longest := lengths.max(initial=0)) > limits.max_record_bytes:
                    raise UserError(f"{name} has a record of {longest:,} bytes")
                yield from rows.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        storage.raise_storage_error(error, name)
        raise UserError(f"{name}: damaged or cut off ({error}); fetch it again") from error


def write_tables(
    path: str | os.PathLike,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    footer: Callable[[], dict[str, Any]] = dict,
) -> int:
    """Write tables, one row group each, and `footer()`, called last, under KEY; return the rows."""
    rows, coded = 0, [one.name for one in schema if pa.types.is_dictionary(one.type)]
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 3}
    with (
        storage.atomic_path(path) as temporary,
        pq.ParquetWriter(temporary, schema, use_dictionary=coded, **options) as writer,
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
