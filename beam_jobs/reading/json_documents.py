"""Finds the reviews in a file that is one JSON object around a list: {"reviews": [{…}, …]}."""

import json
import re
from dataclasses import replace
from itertools import islice

from amazon_electra.beam_jobs.core.errors import UserError, name_setting
from amazon_electra.beam_jobs.reading import fields, json_records
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import LIST

TOKEN = re.compile(rb"(%b)(\s*+:)?|[{}\[\]]" % json_records.STRING.pattern, re.DOTALL)

FIRST_RECORDS = 10


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
        plain = keys - lists.keys()
        has_text = fields.find_column("text", plain) or overrides.get("text") in plain
        if has_text or not lists:
            return layout
        texts = [one for one, place in lists.items() if _has_text(head, place)]
        lists = {one: lists[one] for one in texts} if len(texts) == 1 else lists
        if len(lists) > 1:
            raise UserError(
                f"{shown}: the reviews may be in {fields.shorten_list(lists)}; name the list with "
                f"{name_setting('records', next(iter(lists)))}"
            )
        [wanted] = lists
    return replace(layout, name="json_objects", prefix=head[: lists[wanted]], records=wanted)


def _has_text(head: bytes, start: int) -> bool:
    """Return whether one of the first objects of a list has a text."""
    last = start
    for first, stop in islice(json_records.find_whole_objects(head, start), FIRST_RECORDS):
        if b"]" in head[last:first]:
            return False
        last = stop
        try:
            record = json.loads(head[first:stop], strict=False)
        except ValueError:
            continue
        if fields.find_column("text", {*record}):
            return True
    return False


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
