"""Reads Parquet files with a column of texts; a unit is a stretch of row groups, a "line" a row."""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.core.parquet import open_parquet, read_batches
from amazon_electra.beam_jobs.labels.values import LABEL
from amazon_electra.beam_jobs.reading.dates import SECONDS_OF_A_DAY
from amazon_electra.beam_jobs.reading.fields import LIST
from amazon_electra.beam_jobs.reading.format import Layout, RowFormat
from amazon_electra.beam_jobs.reading.lines import TOO_LONG, Item, Tally, make_reject


class Parquet(RowFormat):
    """Its footer has the columns."""

    name, endings, copy_ending = "parquet", ("parquet", "pq"), "parquet"

    def recognize(self, start: bytes) -> bool:
        return start.startswith(b"PAR1")

    def read_first(self, file: BinaryIO, name: str, layout: Layout) -> list[dict[str, Any]]:
        """Return a record with an empty value of each column's type."""
        try:
            schema = pq.ParquetFile(file).schema_arrow
            if twice := [column for column in schema.names if schema.names.count(column) > 1]:
                raise UserError(f"{name}: two columns are called {twice[0]}; rename one")
            return [{field.name: _make_empty(field.type) for field in schema}]
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            storage.raise_storage_error(error, name)
            raise UserError(
                f"{name} is not a whole Parquet file ({error}); fetch it again"
            ) from None

    def cut(self, file: BinaryIO, size: int) -> Iterator[tuple[int, int, int]]:
        metadata = pq.read_metadata(file)
        groups, start, width = metadata.num_row_groups, 0, 0
        for i in range(groups):
            width += metadata.row_group(i).total_byte_size
            if width >= size or i + 1 == groups:
                yield start, i + 1, width
                start, width = i + 1, 0
        if not groups:
            yield 0, 0, 0

    def count_rows(self, file: BinaryIO, layout: Layout) -> int:
        return int(pq.read_metadata(file).num_rows)

    def read_rows(
        self, file: BinaryIO, name: str, layout: Layout, tally: Tally, start: int, stop: int | None
    ) -> Iterator[Item]:
        """Reads of nested columns only those with a field that is wanted."""
        longest = layout.max_record_bytes
        source = open_parquet(file, name, Limits(longest, layout.max_expansion))
        schema, metadata = source.schema_arrow, source.metadata
        labels = {n for field, n in layout.mapping if field.startswith(LABEL)}
        unread, columns = dict[str, Any](), set[str]()
        for column in layout.read_columns:
            kind: Any = find_type(schema, column)
            if column in labels and isinstance(kind, pa.ListType | pa.LargeListType):
                kind = kind.value_type  # several classes
            if pa.types.is_nested(kind):
                unread[column] = []
            else:
                outer = column.partition(LIST)[0].partition(".")[0]
                columns.add(column if column in schema.names else outer)
        classes = {n: names for n in labels & {*schema.names} if (names := _list_names(schema, n))}
        for group in range(start, metadata.num_row_groups if stop is None else stop):
            numbers = count(tally.lines + 1)
            try:
                for batch, lengths in read_batches(source, group, sorted(columns)):
                    fits = lengths <= longest
                    fitting = batch if fits.all() else batch.filter(pa.array(fits))
                    records = iter(_decode_columns(fitting).to_pylist())
                    for fit, length, row in zip(fits, lengths, numbers, strict=False):
                        if not fit:
                            yield make_reject(row, TOO_LONG, b"", int(length))
                            continue
                        record = next(records) | unread
                        for column, names in classes.items():
                            value = record[column]
                            if type(value) is int and 0 <= value < len(names):
                                record[column] = names[value]
                        yield row, record
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                storage.raise_storage_error(error, name)
                raise UserError(f"{name} is damaged ({error}); fetch it again") from None
            tally.lines += metadata.row_group(group).num_rows


def _make_empty(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _make_empty(field.type) for field in kind}
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return [_make_empty(kind.value_type)]
    if pa.types.is_nested(kind):
        return []
    if pa.types.is_dictionary(kind):
        return _make_empty(kind.value_type)
    return 0 if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) else ""


def find_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column, or of a field `review.text` or `reviews[].text` in one."""
    if name in schema.names:
        return schema.field(name).type
    found: Any = schema
    for part in name.split("."):
        found = found.field(part.replace(LIST, "")).type
        for _ in range(part.count(LIST)):
            found = found.value_type
    return found


def _list_names(schema: pa.Schema, column: str) -> list[str]:
    """Return the names of a column's classes, as Hugging Face's `datasets` writes them."""
    try:
        said = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][column]
        names = said.get("names") or said["dtype"]["class_label"]["names"]
        return [*map(str, names.values() if isinstance(names, dict) else names)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []


def _decode_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn dictionaries and bytes into strings, and times into numbers: days into seconds."""
    for i, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            with suppress(pa.ArrowInvalid):  # strings without their annotation; others are none
                column = column.cast(pa.large_string())
        elif pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        elif pa.types.is_date32(kind):
            column = pc.multiply(column.view(pa.int32()).cast(pa.int64()), SECONDS_OF_A_DAY)
        elif pa.types.is_temporal(kind) and kind.bit_width <= 64:
            column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        if column is not batch.columns[i]:
            batch = batch.set_column(i, batch.schema.names[i], column)
    return batch
