"""Reads a table that is one JSON object, as pandas' `to_json` writes it: column by column (its
default), row by row (`orient="index"`), or as names and rows (`orient="split"`); and one that has a
list for each column (`to_dict("list")`).

Only the whole object shows the rows, so that a file may have as many bytes as a record.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from beam_jobs.core.errors import UserError
from beam_jobs.reading import fields, json_records, wrapped_records
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import BLOCK_BYTES, LIST, Item, Reject, Stream, Tally, make_reject

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


def find_orient(head: bytes, layout: Layout, text: str, shown: str, is_whole: bool) -> str | None:
    """Return how pandas calls the way in which a file is a table, "" for what is none; None if only
    more than these first bytes can tell. `text` is the column of the texts, if it was named.

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
    lists = wrapped_records.find_lists(head, head.index(b"{"))[0]
    if any(not NUMBER_IN_PATH.search(path) for path in lists) and (is_numbered or len(lists) == 1):
        return ""  # of the reviews
    if is_numbered and (is_whole or len(head) > layout.max_record_bytes):
        why = ", broken, without rows, or with rows that do not match its columns; write"
        if not is_whole:
            why = " that is longer than a record may be; raise --max-record-bytes, or write"
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
