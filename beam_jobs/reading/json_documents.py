"""Finds the reviews in a file that is one JSON object: in a list in it, such as
{"reviews": [{…}, …]}, or as the rows of a table.

Tables are read as pandas' `to_json` writes them: column by column (its default), row by row
(`orient="index"`), or as names and rows (`orient="split"`); and one that has a list for each column
(`to_dict("list")`). Only the whole object shows the rows, so that a file of a table may have as
many bytes as a record.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from amazon_electra.beam_jobs.core.errors import UserError, name_setting
from amazon_electra.beam_jobs.reading import fields, json_records
from amazon_electra.beam_jobs.reading.format import WholeFormat
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import (
    BLOCK_BYTES,
    LIST,
    Item,
    Reject,
    Stream,
    Tally,
    make_reject,
)

TOKEN = re.compile(rb"(%b)(\s*+:)?|[{}\[\]]" % json_records.STRING.pattern, re.DOTALL)
START = rb"(?:\xef\xbb\xbf)?\s*+\{\s*+"
KEY = rb"%b\s*+:\s*+" % json_records.STRING.pattern
SPLIT = (
    rb'"columns"\s*+:\s*+\[(?:%b|[^]"])*+\]\s*+,\s*+"(?:index|data)"\s*+:\s*+\[\s*+[^{\s]'
    % json_records.STRING.pattern
)
NUMBERED = re.compile(
    rb'%b(?:%b|"\d++"\s*+:\s*+\{|%b\{\s*+"\d++"\s*+:)' % (START, SPLIT, KEY), re.DOTALL
)
"""Tables that their beginning shows: their rows have numbers, or stand apart from the names."""
NUMBER_IN_PATH = re.compile(r"(^|\.)\d+($|\.)")
MIN_OBJECTS = 3
"""Objects that each have a text, in one object, are the reviews by their keys (Firebase), and not
parts of one."""
LABELED = re.compile(rb"%b%b\{\s*+%b" % (START, KEY, KEY), re.DOTALL)
"""What may be one, with names for its rows, or an object of objects."""
LISTS = re.compile(rb"%b%b\[\s*+[^\s{\[\]]" % (START, KEY), re.DOTALL)
"""What may have a list for each column."""


def unwrap_records(head: bytes, layout: Layout, overrides: dict[str, str], shown: str) -> Layout:
    """Return a layout that begins at the list of reviews, if the file is an object around one.

    Raises UserError if several lists of objects are there and `layout.records` names none of them.
    """
    start = len(head) - len(head.lstrip(json_records.BLANK + b"\xef\xbb\xbf"))
    lists, keys, stop = find_lists(head, start)
    wanted = layout.records
    if wanted and wanted not in lists:
        there = f"; its lists of objects: {fields.shorten_list(lists)}" if lists else ""
        raise UserError(f"{shown}: no list of objects is called {wanted} (`records`){there}")
    if not wanted and head[stop:].strip(json_records.AROUND):
        return layout
    if not wanted:
        named = [*overrides.values()]
        inner = [one for one in lists if all(n.startswith(f"{one}{LIST}.") for n in named)]
        if named and inner:
            wanted = inner[0]
        elif any(LIST in name for name in named):  # and others, of the object around the list
            return layout
        elif "schema.fields" in lists and "data" in lists:  # pandas' to_json(orient="table")
            wanted = "data"
    if not wanted:
        has_text = fields.find_column("text", keys) or overrides.get("text") in keys
        if has_text or not lists:
            return layout
        if len(lists) > 1:
            rest = (
                f", or, if all are of reviews: jq -c '.[][]' {shlex.quote(shown)} > reviews.jsonl"
            )
            raise UserError(
                f"{shown}: the reviews may be in {fields.shorten_list(lists)}; name the list with "
                f"{name_setting('records', next(iter(lists)))}" + rest * (keys == {*lists})
            )
        [wanted] = lists
    return replace(layout, name="json_objects", prefix=head[: lists[wanted]], records=wanted)


def find_lists(head: bytes, start: int) -> tuple[dict[str, int], set[str], int]:
    """Find the lists of objects that are in no other list, in the object at `start`.

    Returns the place behind each one's bracket by its path of keys ("data.reviews"), the keys of
    the object, and its end (that of the head if it is cut off).
    """
    lists: dict[str, int] = {}
    keys: set[str] = set()
    opened: list[tuple[bytes, str, int]] = []  # bracket, key, place behind it
    key = ""
    for token in TOKEN.finditer(head, start) if head.startswith(b"{", start) else ():
        if token[1]:
            if token[2] and len(opened) <= 1:
                keys.add(decode_key(token[1]))
            key = decode_key(token[1]) if token[2] else ""
        elif token[0] in b"{[":
            if token[0] == b"{" and opened and [o[0] for o in opened[-2:]] == [b"{", b"["]:
                path = [name for _, name, _ in opened[1:]]
                if all(bracket == b"{" for bracket, _, _ in opened[:-1]):
                    lists.setdefault(".".join(path), opened[-1][2])
            opened.append((token[0], key, token.end()))
            key = ""
        else:
            opened.pop()
            if not opened:
                return lists, keys, token.end()
    return lists, keys, len(head)


def decode_key(raw: bytes) -> str:
    try:
        return str(json.loads(raw))
    except ValueError:
        return raw.decode("utf-8", "replace")


def find_orient(head: bytes, layout: Layout, text: str, shown: str, is_whole: bool) -> str | None:
    """Return how pandas calls the way in which a file is a table, "" for what is none; None if only
    more than these first bytes show. `text` is the column of the texts, if it was named.

    Raises UserError for a table that cannot be read.
    """
    is_numbered = bool(NUMBERED.match(head))
    is_labeled = LIST not in text and bool(LABELED.match(head) or LISTS.match(head))
    if layout.records or not (is_numbered or is_labeled):
        return ""
    stop = next((stop for _, stop in json_records.find_whole_objects(head)), len(head))
    if head[stop:].strip():
        return ""
    table = _parse(head, layout, Tally()) if is_whole else None
    if (orient := _decide_orient(table, text)) or (type(table) is dict and "columns" not in table):
        return orient
    lists = find_lists(head, head.index(b"{"))[0]
    if any(not NUMBER_IN_PATH.search(path) for path in lists) and (is_numbered or len(lists) == 1):
        return ""  # of the reviews
    if is_numbered and (is_whole or len(head) > layout.max_record_bytes):
        why = ", broken, without rows, or with rows that do not match its columns; write"
        if not is_whole:
            why = " that is longer than a record may be; raise `max_record_bytes`, or write"
        raise UserError(
            f"{shown} is one table in JSON{why} a record a line, in pandas "
            "to_json(FILE, orient='records', lines=True)"
        )
    return "" if is_whole else None


def _parse(raw: bytes, layout: Layout, tally: Tally) -> Any:
    """Return the object of a file, or a reject."""
    try:
        return orjson.loads(raw)
    except ValueError:
        return json_records.parse_json(raw, 1, tally, layout.encoding)


def _decide_orient(table: Any, text: str) -> str:
    """Return "columns", "index", "split" or "lists", or "" for what is no table."""
    if type(table) is not dict:
        return ""
    names, data, labels = (table.get(key) for key in ("columns", "data", "index"))
    if type(names) is list and type(data) is list:
        is_even = all(type(row) is list and len(row) == len(names) for row in data)
        fits = labels is None or (type(labels) is list and len(labels) == len(data))
        is_clear = len({*map(str, names)}) == len(names)
        return "split" if data and is_even and fits and is_clear else ""
    if table and all(type(column) is list for column in table.values()):
        column = table.get(text or fields.find_column("text", {*table}), [])
        is_even = len({len(column) for column in table.values()}) == 1
        return "lists" if len(column) > 1 and is_even and _are_texts(column) else ""
    if any(type(inner) is not dict for inner in table.values()):
        return ""
    keys = {key for inner in table.values() for key in inner}
    if keys and all(map(str.isdigit, keys)):
        if not text or not all(map(str.isdigit, table)):
            return "columns"
        # rows and columns both have numbers: whichever holds texts only
        in_column = text in table and _are_texts(table[text].values())
        in_rows = text in keys and _are_texts(inner.get(text) for inner in table.values())
        return {(True, False): "columns", (False, True): "index"}.get((in_column, in_rows), "")
    if keys and all(map(str.isdigit, table)):
        return "index"
    if len(table) == 1 or any(len(inner) < len(keys) for inner in table.values()):
        column = text or fields.find_column("text", keys)
        is_text = [type(inner.get(column)) is str for inner in table.values()]
        return "index" if len(table) >= MIN_OBJECTS and all(is_text) and not text else ""
    if text in table or (not text and fields.find_column("text", {*table})):
        return "columns"
    is_inside = any(re.match(rf"{re.escape(key)}($|\.|\[)", text) for key in keys)
    return "index" if is_inside or (not text and fields.find_column("text", keys)) else ""


def _are_texts(values: Iterable[Any]) -> bool:
    return all(value is None or type(value) is str for value in values)


def read_json_table(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """Yield (row, record), with the label of the row as `index`."""
    raw = b"".join(iter(lambda: stream.read(BLOCK_BYTES), b""))
    table = _parse(raw, layout, tally)
    orient = layout.orient or _decide_orient(table, "")
    rows: Iterable[tuple[Any, dict[str, Any]]] = ()
    if orient == "split":
        names, data = [*map(str, table["columns"])], table["data"]
        labels = table.get("index") or range(len(data))
        cells = (dict(zip(names, row, strict=True)) for row in data)
        rows = zip(labels, cells, strict=True)
    elif orient == "index":
        rows = table.items()
    elif orient == "lists":
        rows = enumerate(
            dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)
        )
    elif orient == "columns":
        labels = dict.fromkeys(label for column in table.values() for label in column)
        rows = (
            (label, {name: column[label] for name, column in table.items() if label in column})
            for label in labels
        )
    elif raw.strip():
        yield (table if isinstance(table, Reject) else make_reject(1, "not an object", raw))
    for tally.lines, (label, row) in enumerate(rows, 1):
        yield tally.lines, {"index": label} | row


class JsonTable(WholeFormat):
    """A table that is one object, which only the whole file shows (find_orient)."""

    name, is_json = "json_table", True

    def read(
        self, stream: Stream, layout: Layout, tally: Tally, header: bool = True
    ) -> Iterator[Item]:
        return read_json_table(stream, layout, tally)
