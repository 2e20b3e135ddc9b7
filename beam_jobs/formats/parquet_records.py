"""Parquet files with a column of texts; a unit is a stretch of row groups, a "line" a row."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs import storage
from beam_jobs.formats.layout import Layout
from beam_jobs.formats.lines import Rejected, Tally, rejected

BATCH_ROWS = 4096


def columns_of(file: BinaryIO) -> tuple[str, ...]:
    return tuple(pq.ParquetFile(file).schema_arrow.names)


def row_group_bytes(file: BinaryIO) -> list[int]:
    """Uncompressed size of each row group."""
    metadata = pq.ParquetFile(file).metadata
    return [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]


def read(
    file: BinaryIO, layout: Layout, tally: Tally, start: int, stop: int | None
) -> Iterator[tuple[int, dict[str, Any]] | Rejected]:
    """Yields (row, record) of the row groups from `start` to `stop`."""
    parquet = pq.ParquetFile(file)
    columns = sorted({column for _, column in layout.mapping})
    for group in range(start, parquet.metadata.num_row_groups if stop is None else stop):
        expected = tally.lines + parquet.metadata.row_group(group).num_rows
        try:
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
                yield from enumerate(with_numbers(batch).to_pylist(), tally.lines + 1)
                tally.lines += batch.num_rows
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            storage.raise_unless_of_content(error, "a Parquet file")
            for row in range(tally.lines + 1, expected + 1):
                yield rejected(row, "broken Parquet", str(error).encode(), 0)
        tally.lines = expected


def with_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as numbers: those of Python end with the year 9999 and know no nanoseconds."""
    for i, column in enumerate(batch.columns):
        if pa.types.is_temporal(column.type) and column.type.bit_width <= 64:
            number = pa.int64() if column.type.bit_width == 64 else pa.int32()
            batch = batch.set_column(i, batch.schema.names[i], column.view(number))
    return batch
