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
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}]', re.DOTALL)
NEXT_OBJECT = re.compile(rb"[\r\n,\[]\s*\{")


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
    if raw.strip(AROUND):
        yield rejected(line, reason, raw)


def _object(raw: bytes, line: int, tally: Tally, layout: Layout) -> Item:
    try:
        record = orjson.loads(raw)
    except ValueError:
        record = as_json(raw, line, tally, layout.encoding)
    return (line, record) if type(record) is dict else record


def whole_objects(buffer: bytes) -> Iterator[tuple[int, int]]:
    """Where each object that is whole begins and ends."""
    depth = start = 0
    for token in TOKEN.finditer(buffer, max(buffer.find(b"{"), 0)):
        first = buffer[token.start()]
        if first == 0x7B:
            start = token.start() if depth == 0 else start
            depth += 1
        elif first == 0x7D and depth:
            depth -= 1
            if depth == 0:
                yield start, token.end()


def _from_next_object(buffer: bytes) -> bytes:
    """What follows an object that never ends: from the next place where one may begin."""
    following = NEXT_OBJECT.search(buffer, buffer.find(b"{") + 1)
    return buffer[following.end() - 1 :] if following else b""
