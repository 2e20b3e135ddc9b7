"""Reads Parquet files with a column of texts; a unit is a stretch of row groups, a "line" a row.

Fields of structs are read by their dotted names, and those in lists of structs by `reviews[].text`.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.core.parquet import open_parquet, read_batches
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.dates import SECONDS_OF_A_DAY
from amazon_electra.beam_jobs.reading.format import Piece, RowFormat
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import (
    LIST,
    Item,
    Tally,
    finish_records,
    make_reject,
)


def read_empty_record(file: BinaryIO, name: str = "a Parquet file") -> dict[str, Any]:
    """Return a record with the columns of a file and an empty value of the kind of each; raise one
    of Arrow's errors for a footer that is false, UserError for two columns of one name.
    """
    schema = pq.ParquetFile(file).schema_arrow
    if twice := [column for column in schema.names if schema.names.count(column) > 1]:
        raise UserError(f"{name}: two columns are called {twice[0]}; rename one")
    return {field.name: _make_empty(field.type) for field in schema}


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


def find_classes(schema: pa.Schema, name: str) -> list[str]:
    """Return the names of a column's classes, as Hugging Face's `datasets` writes them."""
    try:
        said = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][name]
        names = said.get("names") or said["dtype"]["class_label"]["names"]
        return [*map(str, names.values() if isinstance(names, dict) else names)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []


def read_rows(
    file: BinaryIO,
    layout: Layout,
    tally: Tally,
    start: int,
    stop: int | None,
    name: str = "a Parquet file",
) -> Iterator[Item]:
    """Yield (row, record) of the row groups from `start` to `stop`, too long rows as rejects.

    Of nested columns only those with a field that is wanted are read; a field that is nested itself
    is an empty list, which its reader counts as what it is.
    """
    longest = layout.max_record_bytes
    source = open_parquet(file, name, Limits(longest, layout.max_expansion))
    schema, metadata = source.schema_arrow, source.metadata
    partition = {column for column, _ in layout.partition} - {*schema.names}
    names = sorted(layout.read_columns - partition)
    text = dict(layout.mapping).get("text", "")
    labels = {n for field, n in layout.mapping if field.startswith(fields.LABEL)}
    collected = {n for field, n in layout.mapping if fields.is_collected(field, n, text)}

    def is_read(name: str) -> bool:
        kind: Any = find_type(schema, name)
        if name in labels and isinstance(kind, pa.ListType | pa.LargeListType):
            kind = kind.value_type  # several classes
        return not pa.types.is_nested(kind)

    unread: dict[str, Any] = {n: [] for n in names if not is_read(n)}
    inside = [n for n in names if n not in unread and n not in schema.names]
    nested = [n for n in inside if n not in collected]
    columns = {n.partition(LIST)[0] if n in inside else n for n in names if n not in unread}

    classes = {
        name: found for name in labels & {*schema.names} if (found := find_classes(schema, name))
    }

    def name_classes(record: dict[str, Any]) -> dict[str, Any]:
        for name, found in classes.items():
            if type(value := record.get(name)) is int and 0 <= value < len(found):
                record[name] = found[value]
        return record

    def read_group(group: int, row: int) -> Iterator[Item]:
        if not columns:
            yield from ((row + i, {**unread}) for i in range(metadata.row_group(group).num_rows))
            return
        for batch, lengths in read_batches(source, group, sorted(columns)):
            fits = lengths <= longest
            fitting = batch if fits.all() else batch.filter(pa.array(fits))
            records = iter(_decode_columns(fitting).to_pylist())
            for fit, length in zip(fits, lengths, strict=True):
                if fit:
                    yield row, name_classes(next(records) | unread)
                else:
                    yield make_reject(row, "record too long", b"", int(length))
                row += 1

    for group in range(start, metadata.num_row_groups if stop is None else stop):
        first_row = tally.lines + 1
        end = first_row + metadata.row_group(group).num_rows
        try:
            items = read_group(group, first_row)
            for item in finish_records(items, layout, nested, tally):
                tally.lines = item[0]
                yield item
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            storage.raise_storage_error(error, name)
            if not isinstance(error, UnicodeDecodeError):
                tally.notes["damaged_files"] = 1
            for row in range(tally.lines + 1, end):
                yield make_reject(row, "broken Parquet", str(error).encode(), 0)
        tally.lines = end - 1


def _decode_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn dictionaries and bytes into strings, and times, whose years may exceed Python's, into
    numbers: days into seconds.
    """
    for i, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
            batch = batch.set_column(i, batch.schema.names[i], column)
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            with suppress(pa.ArrowInvalid):  # strings without their annotation; others are none
                batch = batch.set_column(i, batch.schema.names[i], column.cast(pa.large_string()))
        if pa.types.is_decimal(column.type):
            batch = batch.set_column(i, batch.schema.names[i], column.cast(pa.float64()))
        if pa.types.is_date32(column.type):
            days = column.view(pa.int32()).cast(pa.int64())
            batch = batch.set_column(i, batch.schema.names[i], pc.multiply(days, SECONDS_OF_A_DAY))
        elif pa.types.is_temporal(column.type) and column.type.bit_width <= 64:
            number = pa.int64() if column.type.bit_width == 64 else pa.int32()
            batch = batch.set_column(i, batch.schema.names[i], column.view(number))
    return batch


class Parquet(RowFormat):
    """Its footer has the columns; a "line" is a row."""

    name, endings = "parquet", ("parquet", "pq")

    def recognize(self, start: bytes) -> bool:
        return start.startswith(b"PAR1")

    def read_first(self, file: BinaryIO, name: str, layout: Layout) -> list[dict[str, Any]]:
        try:
            return [read_empty_record(file, name)]
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            storage.raise_storage_error(error, name)
            raise UserError(
                f"{name} is not a whole Parquet file ({error}); fetch it again"
            ) from None

    def cut(self, file: BinaryIO, size: int) -> Iterator[Piece]:
        metadata = pq.read_metadata(file)
        groups, start, width = metadata.num_row_groups, 0, 0
        for i in range(groups):
            width += metadata.row_group(i).total_byte_size
            if width >= size or i + 1 == groups:
                yield Piece(start, i + 1, width)
                start, width = i + 1, 0
        if not groups:
            yield Piece(0, 0, 0)

    def count_rows(self, file: BinaryIO, layout: Layout) -> int:
        return int(pq.read_metadata(file).num_rows)

    def read_rows(
        self,
        file: BinaryIO,
        layout: Layout,
        tally: Tally,
        start: int,
        stop: int | None,
        name: str,
    ) -> Iterator[Item]:
        return read_rows(file, layout, tally, start, stop, name)
