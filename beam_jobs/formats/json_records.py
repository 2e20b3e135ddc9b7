"""JSON: one object a line (McAuley 2014, 2018, 2023), one array, or objects in any layout; Python's dicts a line.

orjson reads what is proper JSON, at four times the speed of `json`; what it refuses and real dumps contain (NaN, lone
surrogates, bytes that are not UTF-8, a BOM) `json` reads.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from beam_jobs.formats.layout import Layout
from beam_jobs.formats.lines import BLOCK_BYTES, Rejected, Stream, Tally, decode, line_blocks, rejected

Item = tuple[int, dict[str, Any]] | Rejected
BLANK = b" \t\r\n"
AROUND = BLANK + b",[]\xef\xbb\xbf"  # of an object in an array, and the BOM
AROUND_BROKEN = BLANK + b","
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# Over strings that end where one may: a quote too many, or one too few, shows at the first that does not.
UP_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|%b(?=\s*+[:,\]}]))*+' % STRING.pattern, re.DOTALL)
OPENED_BY = {b"}": b"{", b"]": b"["}
MOST_BLANKS = 1 << 10
NEXT_OBJECT = re.compile(rb'[^\s\[:]\s*+(?=\{\s*+")')  # neither the first of a list nor the value of a field
NESTED_OBJECT = re.compile(rb"[\r\n,\[]\s*\{")


def read_lines(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """Yields (line, record); blank lines are not records."""
    yield from _read(stream, layout, tally, orjson.loads, as_json)


def read_python_lines(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """The oldest McAuley files: `{'reviewerID': …}`, Python literals. Nothing is evaluated but literals."""

    def quickly(line: bytes) -> Any:
        return ast.literal_eval(line.decode().strip())

    yield from _read(stream, layout, tally, quickly, as_python)


def _read(
    stream: Stream, layout: Layout, tally: Tally, quickly: Callable[[bytes], Any], carefully: Callable
) -> Iterator[Item]:
    for block in line_blocks(stream, layout.longest, tally):
        if isinstance(block, Rejected):
            yield block
            continue
        number, lines = block
        for i, line in enumerate(lines, number):
            try:
                record = quickly(line)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                if not line.strip(AROUND):
                    continue
                record = carefully(line, i, tally, layout.encoding)
            if type(record) is dict:
                yield i, record
            else:
                yield record if isinstance(record, Rejected) else rejected(i, "not an object", line)


def as_json(raw: bytes, line: int, tally: Tally, encoding: str) -> Any:
    """A dict, something else that JSON can be, or a reject."""
    try:
        return json.loads(decode(raw.strip(AROUND if raw.lstrip(AROUND)[:1] == b"{" else BLANK), tally, encoding))
    except RecursionError:
        return rejected(line, "nested too deeply", raw)
    except ValueError:
        return rejected(line, "broken JSON", raw)


def as_python(raw: bytes, line: int, tally: Tally, encoding: str) -> Any:
    try:
        return ast.literal_eval(decode(raw.strip(AROUND), tally, encoding))
    except (RecursionError, MemoryError):
        return rejected(line, "nested too deeply", raw)
    except (ValueError, SyntaxError):
        return rejected(line, "broken Python literal", raw)


def read_objects(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """Objects wherever they begin and end: arrays on one line, objects over many lines."""
    buffer, line, at_end = b"", 1, False
    while buffer or not at_end:
        done = 0
        for start, stop in whole_objects(buffer):
            yield from _junk(buffer[done:start], line)
            line += buffer.count(b"\n", done, start)
            yield _object(buffer[start:stop], line, tally, layout)
            line += buffer.count(b"\n", start, stop)
            done = stop
        buffer = buffer[done:]
        if at_end or len(buffer) > layout.longest:
            skipped = len(buffer) - len(_from_next_object(buffer))
            yield from _junk(buffer[:skipped], line, "broken JSON" if at_end else "record too long")
            line += buffer.count(b"\n", 0, skipped)
            buffer = buffer[skipped:]
        if not at_end:
            block = stream.read(max(BLOCK_BYTES, len(buffer)))
            at_end = not block
            tally.lines += block.count(b"\n")
            buffer += block


def _junk(raw: bytes, line: int, reason: str = "not an object") -> Iterator[Rejected]:
    if inner := raw.lstrip(AROUND):
        yield rejected(line + raw.count(b"\n", 0, len(raw) - len(inner)), reason, inner)


def _object(raw: bytes, line: int, tally: Tally, layout: Layout) -> Item:
    try:
        record = orjson.loads(raw)
    except ValueError:
        record = as_json(raw.rstrip(AROUND_BROKEN), line, tally, layout.encoding)
    return (line, record) if type(record) is dict else record


def whole_objects(buffer: bytes) -> Iterator[tuple[int, int]]:
    """Where each object that is whole begins and ends; one that is broken ends where the next seems to begin."""
    start = buffer.find(b"{")
    while start >= 0 and (stop := _end_of(buffer, start)) >= 0:
        yield start, stop
        start = buffer.find(b"{", stop)


def _end_of(buffer: bytes, start: int) -> int:
    """The end of the object at `start`; -1 if it is not in the buffer."""
    inside = bytearray()  # the brackets that are open
    at = start
    while bracket := buffer[at : at + 1]:
        if bracket == b"[" or (bracket == b"{" and (inside[-1:] != b"{" or _is_value(buffer, at))):
            inside += bracket
        elif OPENED_BY.get(bracket) == inside[-1:]:
            inside.pop()
            if not inside:
                return at + 1
        elif bracket == b'"' and _is_cut_off(buffer, at):
            return -1
        else:
            return at if bracket == b"{" else next_object(buffer, at)
        at = UP_TO_BRACKET.match(buffer, at + 1).end()  # type: ignore[union-attr]
    return -1


def _is_value(buffer: bytes, at: int) -> bool:
    return buffer[max(at - MOST_BLANKS, 0) : at].rstrip().endswith(b":")


def _is_cut_off(buffer: bytes, at: int) -> bool:
    """Whether what comes after the quote at `at` may still show it to be in order."""
    string = STRING.match(buffer, at)
    return not string or not buffer[string.end() : string.end() + MOST_BLANKS].strip()


def next_object(buffer: bytes, least: int) -> int:
    """Where after `least` an object seems to begin that is not a field of another; -1 if nowhere."""
    following = NEXT_OBJECT.search(buffer, least)
    return following.end() if following else -1


def _from_next_object(buffer: bytes) -> bytes:
    """What follows an object that never ends: from the next place where one may begin, within it too."""
    following = NESTED_OBJECT.search(buffer, buffer.find(b"{") + 1)
    return buffer[following.end() - 1 :] if following else b""
