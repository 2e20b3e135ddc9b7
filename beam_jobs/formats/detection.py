"""Which of the published formats a file has, found out from its first bytes; `--format` and `--columns` overrule."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from beam_jobs import storage
from beam_jobs.command import UserMistake
from beam_jobs.compression import Compression, open_plain
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
    head = head_of(path, compression, member)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserMistake(f"{path} is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8")
    found = replace(given, name=name or name_of(head, path))
    if found.name == "parquet":
        with storage.open_bytes(path) as file:
            columns: Any = parquet_records.columns_of(file)
    elif found.name == "delimited":
        found = delimited_layout(head, found)
        columns = found.columns
    else:
        columns = columns_in(head, found)
    if not columns:
        return found
    return replace(found, mapping=tuple(fields.resolve(columns, overrides, path).items()))


def head_of(path: str, compression: Compression, member: str) -> bytes:
    with open_plain(path, compression, member) as stream:
        head = b""
        while len(head) < HEAD_BYTES and (block := stream.read(HEAD_BYTES - len(head))):
            head += block
        return head


def name_of(head: bytes, path: str) -> layout.Name:
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
    first = start.split(b"\n", 1)[0]
    if any(delimiter.encode() in first for delimiter in DELIMITERS):
        return "delimited"
    raise UserMistake(f"{path}: its format is not known ({', '.join(layout.NAMES)}); name it with --format")


def json_name(start: bytes) -> layout.Name:
    """One object a line, whatever stands around it, or objects in any layout."""
    lines = [line.strip(json_records.AROUND) for line in start.split(b"\n")[:50]]
    whole = [line for line in lines if line.startswith(b"{") and line.endswith(b"}")]
    if not whole:
        return "json_objects"
    if any(_is_object(line) for line in whole):
        return "json_lines" if len(start.split(b"\n", 1)[0]) < HEAD_BYTES and _one_a_line(lines) else "json_objects"
    if re.match(rb"\{\s*'", whole[0]):
        return "python_lines"
    first = next((start[a:b] for a, b in json_records.whole_objects(start)), b"")
    return "json_objects" if _is_object(first) else "json_lines"


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
    for item in read(io.BytesIO(head), replace(found, longest=HEAD_BYTES), Tally(), header=True):
        if not isinstance(item, Rejected):
            columns |= item[1].keys()
    return columns


def delimited_layout(head: bytes, found: Layout) -> Layout:
    """The delimiter and the use of quotes with which most records have as many fields as the header.

    A tab-separated file in whose beginning there are no quotes is taken to have none that mean something.
    """
    whole = head[: head.rfind(b"\n") + 1] or head
    text = decode(whole, Tally(), found.encoding).lstrip("\ufeff")
    first = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    tries = []
    for quoted, escaped in ((True, False), (False, False), (True, True)):
        candidate = replace(found, delimiter=delimiter, quoted=quoted, escaped=escaped)
        header = next(csv.reader([first.rstrip("\r")], **delimited.dialect(candidate)))
        candidate = replace(candidate, columns=tuple(name.strip() for name in header))
        records = list(delimited.read(io.BytesIO(whole), replace(candidate, longest=HEAD_BYTES), Tally()))
        good = sum(not isinstance(record, Rejected) for record in records)
        as_published = not quoted and delimiter == "\t" and ("marketplace" in header or b'"' not in whole)
        tries.append((as_published, 2 * good - len(records), candidate))
    return max(tries, key=lambda tried: tried[:2])[2]
