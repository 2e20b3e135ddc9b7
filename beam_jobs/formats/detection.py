"""Which of the published formats a file has, found out from its first bytes; `--format` and `--columns` overrule."""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from beam_jobs import storage
from beam_jobs.command import UserMistake
from beam_jobs.compression import Compression, open_plain, refuse_unless_text
from beam_jobs.formats import delimited, fields, json_records, layout, marked_text, parquet_records
from beam_jobs.formats.layout import Layout
from beam_jobs.formats.lines import Rejected, Stream, Tally, decode

HEAD_BYTES = 1 << 18
DELIMITERS = "\t,;|"
SNAP_KEY = re.compile(rb"[A-Za-z]+/[A-Za-z]+: ")
READERS = {
    "json_lines": json_records.read_lines,
    "json_objects": json_records.read_objects,
    "python_lines": json_records.read_python_lines,
    "fasttext": marked_text.read_fasttext,
    "snap": marked_text.read_snap,
}


def read(stream: Stream, found: Layout, tally: Tally, header: bool) -> Iterator[tuple[int, dict[str, Any]] | Rejected]:
    """The records of a stretch of a file, for every format but Parquet."""
    if found.name == "delimited":
        return delimited.read(stream, found, tally, header)
    return READERS[found.name](stream, found, tally)


def look_at(
    path: str, compression: Compression, member: str, name: layout.Name | None, overrides: dict[str, str], given: Layout
) -> Layout:
    """The layout of a file; `given` carries what the user has set: encoding, longest record."""
    shown = f"{path}/{member}" if member else path
    for size in head_sizes(given.longest):
        head = head_of(path, compression, member, size)
        found = replace(given, name=name or name_of(head, shown))
        if found.name == "parquet":
            columns: Iterable[str] = columns_of_parquet(path)
        else:
            refuse_unless_text(head, shown)
            found, columns = look_into(head, found, shown, whole=len(head) < size)
        if columns:
            return replace(found, mapping=tuple(fields.resolve(columns, overrides, shown).items()))
        if len(head) < size:
            return found
    raise UserMistake(
        f"{shown}: no {found.name} record in its first {len(head)} bytes; name another format with --format, "
        "or raise --max_record_bytes"
    )


def head_sizes(longest: int) -> Iterator[int]:
    """Bytes to look at: more only if the first record does not end in fewer."""
    size = HEAD_BYTES
    while size < longest:
        yield size
        size *= 8
    yield longest + HEAD_BYTES


def head_of(path: str, compression: Compression, member: str, size: int) -> bytes:
    with open_plain(path, compression, member) as stream:
        head = b""
        while len(head) < size and (block := stream.read(size - len(head))):
            head += block
        return head


def columns_of_parquet(path: str) -> tuple[str, ...]:
    try:
        with storage.open_bytes(path) as file:
            return parquet_records.columns_of(file)
    except (OSError, pa.ArrowException) as error:
        storage.raise_unless_of_content(error, path)
        raise UserMistake(f"{path} is not a whole Parquet file ({error}); fetch it again") from None


def look_into(head: bytes, found: Layout, shown: str, whole: bool) -> tuple[Layout, Iterable[str]]:
    """What the beginning of a file tells, and the names of its fields. `whole`: it is all of the file."""
    if "json" not in found.name and b"\n" not in head and b"\r" in head.strip():
        raise UserMistake(f"{shown}: its lines end with CR alone; convert them first: tr '\\r' '\\n'")
    if found.name == "delimited":
        found = delimited_layout(head, found)
        return found, found.columns
    if found.name == "fasttext":
        found = replace(found, **marked_text.labels_and_titles(head, found.encoding))
    if found.name == "json_objects" and not whole:
        head = head[: max((stop for _, stop in json_records.whole_objects(head)), default=0)]
    return found, columns_in(head, found)


def name_of(head: bytes, shown: str) -> layout.Name:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"__label__"):
        return "fasttext"
    if SNAP_KEY.match(start):
        return "snap"
    if start.startswith((b"{", b"[")):
        return json_name(start)
    if not start:
        return "json_lines"  # an empty file has no records in any format
    refuse_unless_text(head, shown)
    first = start.split(b"\n", 1)[0]
    if any(delimiter.encode() in first for delimiter in DELIMITERS):
        return "delimited"
    raise UserMistake(
        f"{shown}: its format is not known ({', '.join(layout.NAMES)}); name it with --format, or leave the file out"
    )


def json_name(start: bytes) -> layout.Name:
    """One object a line, whatever stands around it, or objects in any layout."""
    lines = [line.strip(json_records.AROUND) for line in start.split(b"\n")[:50]]
    whole = [line for line in lines if line.startswith(b"{") and line.endswith(b"}")]
    if not whole:
        return "json_objects"
    if any(_is_object(line) for line in whole):
        return "json_lines" if _one_a_line(lines) else "json_objects"
    if re.match(rb"\{\s*'", whole[0]):
        return "python_lines"
    objects = itertools.islice(json_records.whole_objects(start), 50)
    return "json_objects" if any(_is_object(start[a:b]) for a, b in objects) else "json_lines"


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _one_a_line(lines: list[bytes]) -> bool:
    """Not if lines begin objects and do not end them (the last line of the head may be cut off)."""
    return all(line.endswith(b"}") for line in lines[:-1] if line.startswith(b"{")) or _mostly_objects(lines)


def _mostly_objects(lines: list[bytes]) -> bool:
    return sum(_is_object(line) for line in lines) * 2 > len(lines)


def columns_in(head: bytes, found: Layout) -> set[str]:
    """The names of all fields seen in the first records."""
    columns: set[str] = set()
    for item in read(io.BytesIO(head), replace(found, longest=max(len(head), 1)), Tally(), header=True):
        if not isinstance(item, Rejected):
            columns |= item[1].keys()
    return columns


def delimited_layout(head: bytes, found: Layout) -> Layout:
    """The delimiter and the use of quotes with which most records have as many fields as the header.

    A tab-separated file in whose beginning there are no quotes is taken to have none that mean something.
    """
    whole = head[: head.rfind(b"\n") + 1] or head
    text = decode(whole, Tally(), found.encoding).lstrip("\ufeff")
    first = text.split("\n", 1)[0].rstrip("\r").replace("\r", " ")
    delimiter = max(DELIMITERS, key=first.count)
    tries = []
    for quoted, escaped in ((True, False), (False, False), (True, True)):
        candidate = replace(found, delimiter=delimiter, quoted=quoted, escaped=escaped)
        header = next(csv.reader([first], **delimited.dialect(candidate)))
        candidate = replace(candidate, columns=tuple(name.strip() for name in header))
        records = list(delimited.read(io.BytesIO(whole), replace(candidate, longest=len(whole)), Tally()))
        good = sum(not isinstance(record, Rejected) for record in records)
        as_published = not quoted and delimiter == "\t" and ("marketplace" in header or b'"' not in whole)
        tries.append((as_published, 2 * good - len(records), candidate))
    return max(tries, key=lambda tried: tried[:2])[2]
