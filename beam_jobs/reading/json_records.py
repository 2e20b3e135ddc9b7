"""Reads JSON (one object a line, one array, or objects in any layout) and Python dicts, one a line.

orjson reads proper JSON at four times the speed of `json`; `json` reads what orjson refuses and
real dumps contain: NaN, lone surrogates, bytes that are not UTF-8, a BOM.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import orjson

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.fields import LIST
from amazon_electra.beam_jobs.reading.format import Format, Layout, Names
from amazon_electra.beam_jobs.reading.lines import (
    BLOCK_BYTES,
    TOO_LONG,
    Item,
    Reject,
    Stream,
    Tally,
    decode_text,
    make_reject,
)

BLANK = b" \t\r\n"
AROUND = BLANK + b",[]\xef\xbb\xbf"  # of an object in an array, and the BOM
STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
TOKEN = re.compile(rf"({STRING})(\s*+:)?|[{{}}\[\]]".encode(), re.DOTALL)
WHOLE_STRING = re.compile(STRING, re.DOTALL)
DECODER = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
SURROGATE = re.compile("[\ud800-\udbff]")
FIRST_KEY = re.compile(r'\{\s*+("[^"]{0,100}+)?')
NEXT_OBJECT = re.compile(r'[^\s\[:]\s*+(?=\{\s*+")')  # first of no list, value of no field
TRIM_CHARACTERS = 1 << 16  # before an object, in which an error would count the lines
MAX_LITERAL = 10  # characters of a word or an escape, which a text may be cut off in
FIRST_RECORDS = 10
GIVE_UP_FACTOR = 4  # so many times its size is a stretch searched for the end of an object


def parse_json(raw: bytes, line: int, tally: Tally, encoding: str) -> Any:
    """Return the value of a JSON text, or a reject."""
    try:
        return orjson.loads(raw)
    except ValueError:
        pass
    core = raw.strip(AROUND if raw.lstrip(AROUND)[:1] == b"{" else BLANK)
    try:  # with line ends and tabs within strings
        return json.loads(decode_text(core, tally, encoding), strict=False)
    except RecursionError:
        return make_reject(line, "nested too deeply", raw)
    except ValueError:
        return make_reject(line, "broken JSON", raw)


def parse_python_literal(raw: bytes, line: int, tally: Tally, encoding: str) -> Any:
    """Return the value of a Python literal, or a reject."""
    try:
        record = ast.literal_eval(decode_text(raw.strip(AROUND), tally, encoding))
    except (RecursionError, MemoryError):
        return make_reject(line, "nested too deeply", raw)
    except (ValueError, SyntaxError):
        return make_reject(line, "broken Python literal", raw)
    for name, value in record.items() if type(record) is dict else ():
        if type(value) is str and SURROGATE.search(value):  # halves of emoji, as of Python 2
            halves = value.encode("utf-16-le", "surrogatepass")
            record[name] = halves.decode("utf-16-le", "surrogatepass")
    return record


def read_json_objects(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """Read objects wherever they begin and end: arrays on one line, objects over many lines."""
    buffer, line, at_end = b"", tally.lines + 1, False
    while buffer or not at_end:
        spans = list(find_objects(buffer, is_last=at_end))
        is_long = not spans and len(buffer) > layout.max_record_bytes
        if is_long:
            spans = list(find_objects(buffer, is_last=True))
        done = 0
        for start, stop in [*spans, *([(len(buffer),) * 2] if at_end or is_long else [])]:
            between = buffer[done:start]
            junk = between.lstrip(AROUND)
            if junk and not (layout.prefix and start == stop):  # such as "]}" behind a list
                above = between.count(b"\n", 0, len(between) - len(junk))
                yield make_reject(line + above, "not an object", junk)
            line += between.count(b"\n")
            if stop - start > layout.max_record_bytes:
                yield make_reject(line, TOO_LONG, buffer[start:stop])
            elif start < stop:
                raw = buffer[start:stop].rstrip(BLANK + b",")
                record = parse_json(raw, line, tally, layout.encoding)
                yield (line, record) if type(record) is dict else record
            line += buffer.count(b"\n", start, stop)
            done = stop
        buffer = buffer[done:]
        if not at_end:
            block = stream.read(max(BLOCK_BYTES, len(buffer)))
            at_end = not block
            tally.lines += block.count(b"\n")
            buffer += block


def find_objects(buffer: bytes, start: int = 0, is_last: bool = False) -> Iterator[tuple[int, int]]:
    """Yield where each object begins and ends; a broken one ends where the next may begin, in it at
    one with the same first key. One that more bytes may complete is left out unless `is_last`.
    """
    text, base = buffer.decode("latin-1"), 0  # a character is a byte
    at = text.find("{", start)
    while at >= 0:
        if at > TRIM_CHARACTERS:
            text, base, at = text[at:], base + at, 0
        try:
            stop = DECODER.raw_decode(text, at)[1]
        except (ValueError, RecursionError) as error:
            broken, key = max(getattr(error, "pos", 0), at + 1), _read_first_key(text, at)
            is_open = text[broken : broken + 1] == '"' and not WHOLE_STRING.match(text, broken)
            if not is_last and (is_open or broken >= len(text) - MAX_LITERAL):  # only cut off
                return
            starts = (found.end() for found in NEXT_OBJECT.finditer(text, at + 1))
            stop = next(
                (
                    n
                    for n in starts
                    if n >= broken
                    or text[n + 1 : broken].strip() == '"'  # a text lacks its last quote
                    or _read_first_key(text, n) == key  # a list lacks its end
                ),
                len(text) if is_last else -1,
            )
            if stop < 0:
                return
        yield base + at, base + stop
        at = text.find("{", stop)


def _read_first_key(text: str, at: int) -> str | None:
    found = FIRST_KEY.match(text, at)
    return found[1] if found else None


def detect_json_format(start: bytes) -> str:
    """Return the format of JSON: an object per line, or objects in any layout."""
    if re.match(rb"\{\s*(?:'|u['\"])", start):
        return PythonLines.name
    *lines, _ = start.split(b"\n", 50)  # the last may be cut off
    lines = [one for line in lines or [start] if (one := line.strip(AROUND))]
    whole = [line for line in lines if line.startswith(b"{") and line.endswith(b"}")]
    is_json = any(map(_parse_object, whole))
    return JsonLines.name if is_json and 2 * len(whole) >= len(lines) else JsonObjects.name


def _parse_object(raw: bytes) -> dict[str, Any]:
    """Return an object, an empty one where there is none."""
    found = parse_json(raw, 0, Tally(), Layout.encoding)
    return found if type(found) is dict else {}


def unwrap_records(head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
    """Return a layout that begins at the list of reviews in an object; UserError for several."""
    lists, keys, stop = find_lists(head, len(head) - len(head.lstrip(BLANK + b"\xef\xbb\xbf")))
    wanted = layout.records
    why = f"{shown} has {fields.shorten_list(lists) or 'no list of objects'}"
    require(not wanted or wanted in lists, why, "records", wanted)
    if not wanted:
        has_text = overrides.get("text") in keys or fields.find_column("text", keys)
        is_path = any(LIST in name for name in overrides.values())
        if has_text or is_path or not lists or head[stop:].strip(AROUND):
            return layout
        with_texts = [one for one, place in lists.items() if _has_text(head, place)]
        choices = with_texts if len(with_texts) == 1 else [*lists]
        why = f"{shown}: the reviews may be in {fields.shorten_list(choices)}; name the list"
        require(len(choices) == 1, why, "records")
        [wanted] = choices
    return replace(layout, name=JsonObjects.name, prefix=head[: lists[wanted]], records=wanted)


def _has_text(head: bytes, start: int) -> bool:
    """Return whether one of the first objects of a list has a text."""
    for first, stop in islice(find_objects(head, start), FIRST_RECORDS):
        if b"]" in head[start:first]:
            return False
        start = stop
        if fields.find_column("text", {*_parse_object(head[first:stop])}):
            return True
    return False


def find_lists(head: bytes, start: int) -> tuple[dict[str, int], set[str], int]:
    """Return, of the object at `start`, the place behind the bracket of each list of objects that
    is in no other, by its path of keys ("data.reviews"), the object's other keys, and its end.
    """
    lists: dict[str, int] = {}
    keys: set[str] = set()
    opened: list[tuple[bytes, str, int]] = []  # bracket, key, place behind it
    key, stop = "", len(head)
    for token in TOKEN.finditer(head, start) if head.startswith(b"{", start) else ():
        if token[1]:
            key = token[1][1:-1].decode("utf-8", "replace") if token[2] else ""
            if token[2] and len(opened) == 1:
                keys.add(key)
        elif token[0] in b"{[":
            brackets = [bracket for bracket, _, _ in opened]
            if token[0] == b"{" and brackets[1:] and {*brackets[:-1]} == {b"{"} != {brackets[-1]}:
                path = [name for _, name, _ in opened[1:]]
                lists.setdefault(".".join(path), opened[-1][2])
            opened.append((token[0], key, token.end()))
            key = ""
        else:
            opened.pop()
            if not opened:
                stop = token.end()
                break
    return lists, keys - lists.keys(), stop


class JsonLines(Format):
    """One object a line; blank lines are not records."""

    name, endings = "json_lines", ("json", "jsonl", "ndjson")
    copy_ending = "jsonl"
    parse_value = staticmethod(parse_json)

    def recognize(self, start: bytes) -> bool:
        return start.startswith((b"{", b"[")) and detect_json_format(start) == self.name

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        return unwrap_records(head, layout, overrides, shown)

    def parse(self, number: int, line: bytes, layout: Layout, tally: Tally) -> Item | None:
        record = self.parse_value(line, number, tally, layout.encoding)
        if type(record) is list and len(record) == 1:
            record = record[0]
        if type(record) is dict:
            return number, record
        if not line.strip(AROUND):  # an empty list is no record
            return None
        is_reject = isinstance(record, Reject)
        return record if is_reject else make_reject(number, "not an object", line)


class PythonLines(JsonLines):
    """Literals such as `{'reviewerID': …}`, as the oldest McAuley files have them."""

    name, copy_ending = "python_lines", ""
    parse_value = staticmethod(parse_python_literal)

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        return layout


class JsonObjects(JsonLines):
    """Objects in any layout, in a list or one after the other."""

    name, copy_ending = "json_objects", ""

    def cut_head(self, head: bytes, layout: Layout) -> bytes:
        objects = find_objects(head, len(layout.prefix))
        return head[: max((stop for _, stop in objects), default=0)]

    def read(self, stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
        return read_json_objects(stream, layout, tally)

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        """Return the first end of an object at or after `least`, or -1."""
        first = len(layout.prefix) if stretch.startswith(layout.prefix) else 0
        objects = find_objects(stretch, first)
        at = next((stop for _, stop in objects if stop >= least), -1)
        if at >= 0 or len(stretch) < GIVE_UP_FACTOR * least:
            return at
        following = NEXT_OBJECT.search(stretch.decode("latin-1"), least)
        return following.end() if following else -1

    def is_stateless(self, layout: Layout) -> bool:
        return False
