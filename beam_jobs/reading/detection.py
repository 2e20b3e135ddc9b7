"""Detects the format of a dump file from its first bytes; `--format` and `--columns` overrule."""

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.reading import (
    delimited,
    fields,
    json_records,
    parquet_records,
    wrapped_records,
)
from beam_jobs.reading.compression import Compression, open_uncompressed, refuse_unless_text
from beam_jobs.reading.formats import FORMATS
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import Reject, Stream, Tally

HEAD_BYTES = 1 << 18


def read_records(
    stream: Stream, found: Layout, tally: Tally, header: bool
) -> Iterator[tuple[int, dict[str, Any]] | Reject]:
    """Read the records of a stretch of a file, in every format but Parquet.

    `header`: the stretch is the beginning of the file.
    """
    if found.name == "delimited":
        return delimited.read_delimited(stream, found, tally, header)
    read = FORMATS[found.name].read
    assert read, f"{found.name} is not read from a stream"
    if found.prefix and header:
        left = len(found.prefix)
        while left and (block := stream.read(left)):
            left -= len(block)
        tally.lines = found.prefix.count(b"\n")
    return read(stream, found, tally)


def detect_layout(
    path: str,
    compression: Compression,
    member: str,
    name: str | None,
    overrides: dict[str, str],
    defaults: Layout,
) -> Layout:
    """Detect the layout of a file; `defaults` holds what the user has set (encoding, limits)."""
    shown = f"{path}/{member}" if member else path
    for size in list_head_sizes(defaults.max_record_bytes):
        head = read_head(path, compression, member, size)
        found = replace(defaults, name=name or detect_format(head, shown))
        if found.name == "parquet":
            columns: Iterable[str] = read_parquet_columns(path)
        else:
            refuse_unless_text(head, shown)
            if found.name in ("json_lines", "json_objects"):
                found = wrapped_records.unwrap_records(head, found, overrides, shown)
            found, columns = inspect_head(head, found, shown, whole=len(head) < size)
        if columns:
            mapping = fields.map_columns(columns, overrides, shown)
            unused = fields.list_unused_columns(columns, mapping)
            return replace(found, mapping=tuple(mapping.items()), unused=tuple(unused.items()))
        if len(head) < size:
            return found
    raise UserError(
        f"{shown}: no {found.name} record in its first {len(head)} bytes; "
        "name another format with --format, or raise --max-record-bytes"
    )


def list_head_sizes(longest: int) -> Iterator[int]:
    """Yield how many bytes to look at: more only if the first record does not end in fewer."""
    size = HEAD_BYTES
    while size < longest:
        yield size
        size *= 8
    yield longest + HEAD_BYTES


def read_head(path: str, compression: Compression, member: str, size: int) -> bytes:
    with open_uncompressed(path, compression, member) as stream:
        head = b""
        while len(head) < size and (block := stream.read(size - len(head))):
            head += block
        return head


def read_parquet_columns(path: str) -> tuple[str, ...]:
    try:
        with storage.open_bytes(path) as file:
            return parquet_records.read_column_names(file)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        storage.raise_storage_error(error, path)
        raise UserError(f"{path} is not a whole Parquet file ({error}); fetch it again") from None


def inspect_head(
    head: bytes, found: Layout, shown: str, whole: bool
) -> tuple[Layout, Iterable[str]]:
    """Return the layout that the beginning of a file shows, and the names of its fields.

    `whole`: the beginning is all of the file.
    """
    if "json" not in found.name and b"\n" not in head and b"\r" in head.strip():
        raise UserError(f"{shown}: its lines end with CR alone; convert them first: tr '\\r' '\\n'")
    if inspect := FORMATS[found.name].inspect:
        found = inspect(head, found)
    if found.columns:
        return found, found.columns
    if found.name == "json_objects" and not whole:
        objects = json_records.find_whole_objects(head, len(found.prefix))
        head = head[: max((stop for _, stop in objects), default=0)]
    return found, collect_columns(head, found)


def detect_format(head: bytes, shown: str) -> str:
    """Return the name of the first format that recognizes the beginning of a file."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        return "json_lines"  # an empty file has no records in any format
    for name, one in FORMATS.items():
        if one.recognize(start):
            return name
    refuse_unless_text(head, shown)
    raise UserError(
        f"{shown}: its format is not known ({', '.join(FORMATS)}); "
        "name it with --format, or leave the file out"
    )


def collect_columns(head: bytes, found: Layout) -> set[str]:
    """Collect the names of all fields in the first records."""
    columns: set[str] = set()
    for item in read_records(
        io.BytesIO(head), replace(found, max_record_bytes=max(len(head), 1)), Tally(), header=True
    ):
        if not isinstance(item, Reject):
            columns |= item[1].keys()
    return columns
