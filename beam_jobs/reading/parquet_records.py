"""Reads Parquet files with a column of texts; a unit is a stretch of row groups, a "line" a row.

A few hundred bytes of Parquet can stand for gigabytes: pages are compressed, and a text that stands
in a dictionary once may occur in every row. So strings stay dictionaries until their lengths have
been looked at, and nested columns are not read.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs.job import storage
from beam_jobs.job.errors import UserError
from beam_jobs.reading.compression import UNLIMITED_BYTES
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import Reject, Tally, make_reject

BATCH_ROWS = 4096
SLICE_BYTES = 1 << 26  # of strings that become Python objects at once


def read_column_names(file: BinaryIO) -> tuple[str, ...]:
    return tuple(pq.ParquetFile(file).schema_arrow.names)


def count_rows(file: BinaryIO) -> int:
    """Return the number of rows that the footer says."""
    return pq.ParquetFile(file).metadata.num_rows


def read_row_group_bytes(file: BinaryIO) -> list[int]:
    """Return the uncompressed bytes of each row group."""
    metadata = pq.ParquetFile(file).metadata
    return [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]


class RowReader:
    """Reads the rows of a stretch of row groups and limits what they expand to."""

    def __init__(self, file: BinaryIO, layout: Layout, max_expansion: float, name: str) -> None:
        names = sorted({column for _, column in layout.mapping})
        schema = pq.ParquetFile(file).schema_arrow
        self._nested = [
            name
            for name in names
            if _is_unbounded(schema.field(name).type, layout.max_record_bytes)
        ]
        self._columns = [name for name in names if name not in self._nested]
        strings = [name for name in self._columns if _is_string(schema.field(name).type)]
        self._parquet = pq.ParquetFile(file, read_dictionary=strings)
        self._longest, self._max_expansion, self._name = (
            layout.max_record_bytes,
            max_expansion,
            name,
        )
        self._packed = self._expanded = 0

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._parquet.metadata

    def read_group(self, group: int, first_row: int) -> Iterator[tuple[int, Any] | Reject]:
        """Yield (row, record) of a row group whose first row has this number."""
        columns = self.metadata.row_group(group)
        chunks = [columns.column(i) for i in range(columns.num_columns)]
        chunks = [c for c in chunks if c.path_in_schema in self._columns]
        self._packed += sum(chunk.total_compressed_size for chunk in chunks)
        self._check_expansion(sum(chunk.total_uncompressed_size for chunk in chunks))
        if not self._columns:
            yield from ((first_row + i, self._add_nested({})) for i in range(columns.num_rows))
            return
        for batch in self._parquet.iter_batches(
            BATCH_ROWS, row_groups=[group], columns=self._columns
        ):
            yield from self._read_batch(batch, first_row)
            first_row += batch.num_rows

    def _read_batch(
        self, batch: pa.RecordBatch, first_row: int
    ) -> Iterator[tuple[int, Any] | Reject]:
        lengths = sum_string_lengths(batch)
        self._expanded += int(lengths.sum()) + batch.num_rows
        self._check_expansion(self._expanded)
        sums = np.cumsum(np.where(lengths > self._longest, 0, lengths)) // SLICE_BYTES
        for start, stop in _find_runs(sums):
            fits = lengths[start:stop] <= self._longest
            rows = batch.slice(start, stop - start)
            rows = rows if fits.all() else rows.filter(pa.array(fits))
            records = iter(_decode_columns(rows).to_pylist())
            for row, (fit, length) in enumerate(
                zip(fits, lengths[start:stop], strict=True), first_row + start
            ):
                if fit:
                    yield row, self._add_nested(next(records))
                else:
                    yield make_reject(row, "record too long", b"", int(length))

    def _add_nested(self, record: dict[str, Any]) -> dict[str, Any]:
        """Put an empty list where a nested value was: its reader counts it as what it is."""
        for name in self._nested:
            record[name] = []
        return record

    def _check_expansion(self, size: int) -> None:
        limit = max(self._max_expansion * self._packed, UNLIMITED_BYTES)
        if self._max_expansion and size > limit:
            raise UserError(
                f"{self._name} expands to more than {self._max_expansion:g} times its size; "
                "if it is meant to, raise --max-expansion"
            )


def read_rows(
    file: BinaryIO,
    layout: Layout,
    tally: Tally,
    start: int,
    stop: int | None,
    max_expansion: float = 0,
    name: str = "a Parquet file",
) -> Iterator[tuple[int, dict[str, Any]] | Reject]:
    """Yield (row, record) of the row groups from `start` to `stop`.

    Strings of all rows may take `max_expansion` times the compressed bytes (0: any), those of one
    row `layout.max_record_bytes`.
    """
    reader = RowReader(file, layout, max_expansion, name)
    for group in range(start, reader.metadata.num_row_groups if stop is None else stop):
        first_row = tally.lines + 1
        end = first_row + reader.metadata.row_group(group).num_rows
        try:
            for item in reader.read_group(group, first_row):
                tally.lines += 1
                yield item
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            storage.raise_storage_error(error, name)
            for row in range(tally.lines + 1, end):
                yield make_reject(row, "broken Parquet", str(error).encode(), 0)
        tally.lines = end - 1


def sum_string_lengths(batch: pa.RecordBatch) -> np.ndarray:
    """Return the bytes of all strings of each row, int64, without making them."""
    lengths = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and _is_string(column.type.value_type):
            sizes = pc.binary_length(column.dictionary).take(column.indices)
        elif _is_string(column.type):
            sizes = pc.binary_length(column)
        else:
            continue
        lengths += sizes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _decode_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn dictionaries into strings, and times, whose years may exceed Python's, into numbers."""
    for i, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type):
            batch = batch.set_column(i, batch.schema.names[i], column.dictionary_decode())
        if pa.types.is_temporal(column.type) and column.type.bit_width <= 64:
            number = pa.int64() if column.type.bit_width == 64 else pa.int32()
            batch = batch.set_column(i, batch.schema.names[i], column.view(number))
    return batch


def _is_string(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _is_unbounded(kind: pa.DataType, longest: int) -> bool:
    """Return whether one value may take more than `longest` bytes without being a string."""
    wide = pa.types.is_fixed_size_binary(kind) and kind.byte_width > longest
    return pa.types.is_nested(kind) or wide


def _find_runs(keys: np.ndarray) -> list[tuple[int, int]]:
    """Return (start, stop) of each run of equal keys."""
    cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    return [(a, b) for a, b in pairwise(cuts) if a < b]
