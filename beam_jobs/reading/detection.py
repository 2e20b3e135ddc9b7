"""Detects the format of a dump file from its first bytes; `--format` and `--columns` overrule."""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from beam_jobs.job import storage
from beam_jobs.job.errors import UserError
from beam_jobs.reading import (
    delimited,
    fields,
    json_records,
    layout,
    marked_text,
    parquet_records,
    wrapped_records,
)
from beam_jobs.reading.compression import Compression, open_uncompressed, refuse_unless_text
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import Reject, Stream, Tally, decode_text

HEAD_BYTES = 1 << 18
DELIMITERS = "\t,;|"
SNAP_KEY = re.compile(rb"[A-Za-z]+/[A-Za-z]+: ")
READERS = {
    "json_lines": json_records.read_json_lines,
    "json_objects": json_records.read_json_objects,
    "python_lines": json_records.read_python_lines,
    "fasttext": marked_text.read_fasttext,
    "snap": marked_text.read_snap,
}


def read_records(
    stream: Stream, found: Layout, tally: Tally, header: bool
) -> Iterator[tuple[int, dict[str, Any]] | Reject]:
    """Read the records of a stretch of a file, in every format but Parquet.

    `header`: the stretch is the beginning of the file.
    """
    if found.name == "delimited":
        return delimited.read_delimited(stream, found, tally, header)
    if found.prefix and header:
        left = len(found.prefix)
        while left and (block := stream.read(left)):
            left -= len(block)
        tally.lines = found.prefix.count(b"\n")
    return READERS[found.name](stream, found, tally)


def detect_layout(
    path: str,
    compression: Compression,
    member: str,
    name: layout.Format | None,
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
    if found.name == "delimited":
        found = detect_delimited_layout(head, found)
        return found, found.columns
    if found.name == "fasttext":
        found = replace(found, **marked_text.detect_labels_and_titles(head, found.encoding))
    if found.name == "json_objects" and not whole:
        objects = json_records.find_whole_objects(head, len(found.prefix))
        head = head[: max((stop for _, stop in objects), default=0)]
    return found, collect_columns(head, found)


def detect_format(head: bytes, shown: str) -> layout.Format:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"__label__"):
        return "fasttext"
    if SNAP_KEY.match(start):
        return "snap"
    if start.startswith((b"{", b"[")):
        return detect_json_format(start)
    if not start:
        return "json_lines"  # an empty file has no records in any format
    refuse_unless_text(head, shown)
    first = start.split(b"\n", 1)[0]
    if any(delimiter.encode() in first for delimiter in DELIMITERS):
        return "delimited"
    raise UserError(
        f"{shown}: its format is not known ({', '.join(layout.FORMATS)}); "
        "name it with --format, or leave the file out"
    )


def detect_json_format(start: bytes) -> layout.Format:
    """Tell one object per line, whatever stands around it, from objects in any layout."""
    lines = [line.strip(json_records.AROUND) for line in start.split(b"\n")[:50]]
    whole = [line for line in lines if line.startswith(b"{") and line.endswith(b"}")]
    if not whole:
        return "json_objects"
    if any(_is_object(line) for line in whole):
        return "json_lines" if _has_one_object_per_line(lines) else "json_objects"
    if re.match(rb"\{\s*'", whole[0]):
        return "python_lines"
    objects = itertools.islice(json_records.find_whole_objects(start), 50)
    return "json_objects" if any(_is_object(start[a:b]) for a, b in objects) else "json_lines"


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _has_one_object_per_line(lines: list[bytes]) -> bool:
    """Return False if lines begin objects without ending them; the last may be cut off."""
    return all(
        line.endswith(b"}") for line in lines[:-1] if line.startswith(b"{")
    ) or _are_mostly_objects(lines)


def _are_mostly_objects(lines: list[bytes]) -> bool:
    return sum(_is_object(line) for line in lines) * 2 > len(lines)


def collect_columns(head: bytes, found: Layout) -> set[str]:
    """Collect the names of all fields in the first records."""
    columns: set[str] = set()
    for item in read_records(
        io.BytesIO(head), replace(found, max_record_bytes=max(len(head), 1)), Tally(), header=True
    ):
        if not isinstance(item, Reject):
            columns |= item[1].keys()
    return columns


def detect_delimited_layout(head: bytes, found: Layout) -> Layout:
    """Choose the delimiter and quoting with which most records have as many fields as the header.

    In a tab-separated file without quotes at its beginning, later quotes have no meaning.
    """
    whole = head[: head.rfind(b"\n") + 1] or head
    text = decode_text(whole, Tally(), found.encoding).lstrip("\ufeff")
    first = text.split("\n", 1)[0].rstrip("\r").replace("\r", " ")
    delimiter = max(DELIMITERS, key=first.count)
    tries = []
    for quoted, escaped in ((True, False), (False, False), (True, True)):
        candidate = replace(found, delimiter=delimiter, has_quotes=quoted, has_escapes=escaped)
        header = next(csv.reader([first], **delimited.make_dialect(candidate)))
        candidate = replace(candidate, columns=tuple(name.strip() for name in header))
        records = list(
            delimited.read_delimited(
                io.BytesIO(whole), replace(candidate, max_record_bytes=len(whole)), Tally()
            )
        )
        good = sum(not isinstance(record, Reject) for record in records)
        as_published = (
            not quoted and delimiter == "\t" and ("marketplace" in header or b'"' not in whole)
        )
        tries.append((as_published, 2 * good - len(records), candidate))
    return max(tries, key=lambda tried: tried[:2])[2]
