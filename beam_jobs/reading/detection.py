"""Detects the format of a dump file from its first bytes; `--format` and `--columns` overrule."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.labels.values import LABEL
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.compression import Compression, PlainStream, refuse_bytes
from amazon_electra.beam_jobs.reading.fields import LIST
from amazon_electra.beam_jobs.reading.format import Layout, RowFormat
from amazon_electra.beam_jobs.reading.formats import OURS, find_format, list_formats
from amazon_electra.beam_jobs.reading.lines import Item, Reject, Stream, Tally

HEAD_BYTES = 1 << 18
MAX_NESTING = 4
FIRST_RECORDS = 100  # of which one at least must have a text
NUMBER = re.compile(r"\d+([.,]\d+)?")
FOREIGN = re.compile(
    rb"<|%|//|/\*|--\s|[\w.$ ]+[=(]\s*[\[{]|\[\s*+\[\s*+[^\s{\[\]]|version https://git-lfs"
)  # what markup, SQL, scripts, lists without names and pointers of Git LFS begin with


def read_records(stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
    """Read the records of a stretch of a file of text; `header`: it is the file's beginning."""
    if layout.prefix and header:
        left = len(layout.prefix)
        while left and (block := stream.read(left)):
            left -= len(block)
        tally.lines = layout.prefix.count(b"\n")
    format = find_format(layout.name)
    items = format.read(stream, layout, tally, header)
    return fields.finish_records(items, layout, format.list_columns(layout, []), tally)


def list_nested_names(record: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of fields in objects and lists in a record, as `--columns` takes them."""
    for key, given in record.items():
        name, value = f"{prefix}{key}", given
        while isinstance(value, list | tuple) and value:
            name += LIST
            objects = [item for item in value if type(item) is dict]
            value = {k: v for item in objects for k, v in item.items()} or value[0]
        if type(value) is dict and value and type(fields.unwrap(value)) is dict:
            if prefix.count(".") < MAX_NESTING:
                yield from list_nested_names(value, f"{name}.")
        elif prefix or (value is not given and isinstance(value, str)):
            yield name


def detect_layout(
    path: str,
    first: bytes,
    compression: Compression,
    member: str,
    name: str | None,
    overrides: dict[str, str],
    defaults: Layout,
) -> Layout:
    """Detect the layout of a file by its `first` HEAD_BYTES; `defaults` are the user's."""
    shown = f"{path}/{member}" if member else path
    for size in (HEAD_BYTES, HEAD_BYTES + defaults.max_record_bytes):
        head = read_head(path, first, compression, member, size)
        is_whole = len(head) < size
        layout = replace(defaults, name=name or detect_format(head, shown))
        format = find_format(layout.name)
        format.refuse(head, layout, shown, is_packed=bool(compression))
        rejects: list[Reject] = []
        if isinstance(format, RowFormat):
            with storage.open_bytes(path) as file:
                records = format.read_first(file, path, layout)
        else:
            layout = format.inspect(head, layout, overrides, shown)
            format = find_format(layout.name)
            whole = head if is_whole else format.cut_head(head, layout)
            limited = replace(layout, max_record_bytes=max(len(whole), 1))
            items = list(read_records(io.BytesIO(whole), limited, Tally(), header=True))
            records = [item[1] for item in items if not isinstance(item, Reject)]
            rejects = [] if records else [item for item in items if isinstance(item, Reject)]
        columns = format.list_columns(layout, records)
        if columns:
            found = map_fields(layout, columns, records, overrides, shown)
            if not rejects:
                return found
        if is_whole and not rejects:
            return layout
        if is_whole:
            break
    raise UserError(
        f"{shown}: no {layout.name} record in its first {len(head)} bytes"
        + (f": {rejects[0].reason} in line {rejects[0].line}; " if rejects else "; ")
        + "mend it, convert it to CSV or JSON lines, or name another format with `format`"
        + ("" if is_whole else ", or raise `max_record_bytes`")
    )


def map_fields(
    layout: Layout,
    columns: list[str],
    records: list[dict[str, Any]],
    overrides: Mapping[str, str],
    shown: str,
) -> Layout:
    """Return a layout with the columns of a review's fields, by the first records."""
    some = records[:FIRST_RECORDS]
    known = choose_columns(columns, some, overrides)
    once = {n for n in known if columns.count(n) < 2 or n in overrides.values()}
    if not fields.find_column("text", once) and not fields.propose_text(once, some):
        once = known
    ordered = [n for n in dict.fromkeys([*columns, *sorted(known)]) if n in once]
    mapping = fields.map_columns(ordered, overrides, shown, some)
    texts = fields.split_joined(mapping["text"], known)
    single = [n for f, n in mapping.items() if f != "text" and not f.startswith(LABEL)]
    twice = min((name for name in [*texts, *single] if columns.count(name) > 1), default=None)
    require(twice is None, f"{shown}: two columns are called {twice}; rename one")
    check_texts(records, texts, shown)
    parts = {n: tuple(fields.split_joined(n, known)) for n in mapping.values() if n not in known}
    unused = sorted(known.difference(mapping.values(), *parts.values()))
    found = replace(
        layout,
        mapping=tuple(mapping.items()),
        joined=tuple(parts.items()),
        unused=tuple(unused[: fields.MAX_LISTED_COLUMNS]),
    )
    others = {*mapping.values()} - {mapping["text"]} - fields.list_collected(found)
    fields.check_lists([*texts, *others], shown)
    return found


def choose_columns(
    columns: Iterable[str], records: list[dict[str, Any]], overrides: Mapping[str, str]
) -> set[str]:
    """Return a file's fields; those of objects too, where they are meant, or the text is in one."""
    columns = set(columns)
    meant = [n for name in overrides.values() for n in fields.split_joined(name, columns)]
    plain = {
        name
        for name in columns
        if not records or any(type(fields.unwrap(r.get(name))) is not dict for r in records)
    }
    texts = fields.split_joined(overrides.get("text", ""), columns)
    has_text = plain.issuperset(texts) or fields.find_column("text", plain)
    has_stars = fields.find_column("stars", columns) in {"", *plain}
    if has_text and has_stars and columns.issuperset(meant):
        return columns
    return plain.union(*(list_nested_names(record) for record in records))


def check_texts(records: list[dict[str, Any]], columns: Sequence[str], shown: str) -> None:
    """Raise UserError where a column of texts holds values, but no text, or lists of reviews."""
    some = records[:FIRST_RECORDS]
    for column in columns:
        why = f"{shown}: {column} holds lists of reviews; write a row for each review"
        require(not fields.holds_lists(column, some), why)
        reviews = [review for record in some for review in fields.expand_record(record, [column])]
        values = [fields.unwrap(review[column]) for review in reviews]
        given = [value for value in values if value not in (None, "")]
        if given and not any(isinstance(v, str) and not NUMBER.fullmatch(v.strip()) for v in given):
            raise UserError(
                f"{shown}: {column} holds no text but {json.dumps(given[0], default=str)[:60]}; "
                "name another column with `--columns text=NAME`"
            )


def read_head(path: str, first: bytes, compression: Compression, member: str, size: int) -> bytes:
    """Return so many uncompressed bytes of a file, of which `first` are the first HEAD_BYTES."""
    is_whole = len(first) < HEAD_BYTES
    if not compression and (is_whole or size <= HEAD_BYTES):
        return first[:size]
    content = first if is_whole and compression != "zip" else None
    with PlainStream(path, compression, member, block_bytes=HEAD_BYTES, content=content) as stream:
        head = b""
        while len(head) < size and (block := stream.read(size - len(head))):
            head += block
        return head


def detect_format(head: bytes, shown: str) -> str:
    """Return the name of the first format that recognizes the beginning of a file."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        return OURS[0].name  # an empty file has no records in any format
    is_foreign = FOREIGN.match(start)
    for name, one in list_formats().items():
        if (type(one) not in OURS or not is_foreign) and one.recognize(start):
            return name
    raise refuse_bytes(start, shown)
