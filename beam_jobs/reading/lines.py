"""Reads a byte stream as lines of bounded length and decodes them; takes reviews out of records."""

import codecs
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.reading.layout import Layout

BLOCK_BYTES = 1 << 20
RAW_REJECT_BYTES = 1 << 16
STOPS = tuple(".!?…。！？:;,)")  # how a text ends that needs no full stop
LIST = "[]"
"""In the name of a field: what is before it is a list, and what follows is in each of its items."""
TOO_LONG = "record too long"


class WrongFile(ValueError):
    """Raised for a file that is not what its beginning shows; the message follows its name."""


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass
class Tally:
    """Line numbers and notes that a reader collects beside the records."""

    lines: int = 0  # so far; after the last record, all lines of the unit
    bytes: int = 0  # of the unit, uncompressed; known after the last record
    notes: Counter[str] = field(default_factory=Counter)


class Reject(NamedTuple):
    """A stretch of a file that should have been a record and cannot be read as one."""

    line: int
    reason: str
    raw: bytes
    size: int  # bytes in the dump; `raw` is only the beginning of what is very long


Item = tuple[int, dict[str, Any]] | Reject
"""What readers yield: the line (of Parquet the row) of a record and the record, or a reject."""


def make_reject(line: int, reason: str, raw: bytes, size: int | None = None) -> Reject:
    return Reject(line, reason, raw[:RAW_REJECT_BYTES], len(raw) if size is None else size)


def join_rejects(first: Reject, second: Reject) -> Reject:
    """Return one reject for the lines of two, which are one record."""
    raw = first.raw if first.size > len(first.raw) else first.raw + b"\n" + second.raw
    return make_reject(first.line, first.reason, raw, first.size + 1 + second.size)


def read_lines(stream: Stream, longest: int, tally: Tally) -> Iterator[tuple[int, bytes] | Reject]:
    """Yield (number, line without its end); of one above `longest` bytes a reject."""
    held: list[bytes] = []  # of the line under way
    size = 0

    def finish_line() -> tuple[int, bytes] | Reject:
        tally.lines += 1
        line = b"".join(held)
        if size > longest:
            return make_reject(tally.lines, TOO_LONG, line, size)
        return tally.lines, line

    while block := stream.read(BLOCK_BYTES):
        rest, *lines = block.split(b"\n")
        if size <= longest:
            held.append(rest)
        size += len(rest)
        for line in lines:
            yield finish_line()
            held, size = [line], len(line)
    if size:
        yield finish_line()


def read_blocks(
    stream: Stream, layout: Layout, tally: Tally
) -> Iterator[tuple[int, list[bytes], int] | Reject]:
    """Yield the blocks of lines between empty lines: number of the first, lines, bytes; of a block
    above `max_record_bytes` only the beginning is held.
    """
    first, held, size = 1, list[bytes](), 0
    for item in read_lines(stream, layout.max_record_bytes, tally):
        if isinstance(item, Reject):
            yield item
        elif item[1].strip():
            first = first if held else item[0]
            if size <= layout.max_record_bytes:
                held.append(item[1])
            size += len(item[1]) + 1
        elif held:
            yield first, held, size
            held, size = [], 0
    if held:
        yield first, held, size


def decode_text(raw: bytes, tally: Tally, encoding: str = "utf-8") -> str:
    """Decode text, and what does not follow its encoding as cp1252; such texts are counted."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        if encoding == "utf-8":
            with suppress(UnicodeDecodeError):  # halves of characters beyond 16 bits, as of Java
                halves = raw.decode(encoding, "surrogatepass").encode("utf-16-le", "surrogatepass")
                return halves.decode("utf-16-le")
        tally.notes["decoded_as_cp1252"] += 1
        return raw.decode(encoding, "amazon_electra_cp1252")


def _decode_as_cp1252(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error("amazon_electra_cp1252", _decode_as_cp1252)


def finish_records(
    items: Iterator[Item], layout: Layout, nested: Collection[str], tally: Tally
) -> Iterator[Item]:
    """Yield the reviews of records: with the fields within others (`nested`), and the texts of
    several columns as one.
    """
    text, joined = dict(layout.mapping).get("text", ""), layout.text_columns
    if not (nested or layout.joined):
        yield from items
        return
    for item in items:
        if isinstance(item, Reject):
            yield item
            continue
        reviews = expand_record(item[1], nested) if nested else [item[1]]
        if not reviews:
            tally.notes["records_without_reviews"] += 1
        for review in reviews:
            if joined != (text,):
                values = (review.get(column) for column in joined)
                parts = [value for value in values if isinstance(value, str) and value.strip()]
                review[text] = join_texts(parts) if parts else None
            yield item[0], review


def join_texts(parts: Iterable[str]) -> str:
    """Return texts as one, each with a full stop that ends in none."""
    return " ".join(p if p.endswith(STOPS) else f"{p}." for p in map(str.strip, parts) if p)


def expand_record(record: dict[str, Any], names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the reviews of a record, each with the fields of these names: `review.text` is in an
    object, `products[].reviews[].text` in each object of lists. What stands where a list should is
    its only item.
    """
    paths = {name: name for name in names if name not in record}
    return [record | found for found in _expand(record, paths)]


def _expand(value: Any, paths: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield name → value at its path for each item of the innermost list."""
    found = {name: _look_up(value, path) for name, path in paths.items() if LIST not in path}
    split = {name: path.partition(LIST) for name, path in paths.items() if LIST in path}
    if not split:
        yield found
        return
    items = _look_up(value, next(iter(split.values()))[0])
    inner = {name: path.removeprefix(".") for name, (_, _, path) in split.items()}
    if items is not None and not isinstance(items, list | tuple):
        items = [items]
    for item in items or ():
        for fields in _expand(item, inner):
            yield found | fields


def _look_up(value: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        value = value.get(part) if type(value) is dict else None
    return value


def collect_values(value: Any, path: str) -> Iterator[Any]:
    """Yield all values at a path through lists, such as `annotations[].result[].choices[]`."""
    before, mark, behind = path.partition(LIST)
    found = _look_up(value, before.removeprefix("."))
    if not mark:
        yield found
    elif isinstance(found, list | tuple):
        for item in found:
            yield from collect_values(item, behind)


def name_list(name: str) -> str:
    """Return what all names of its list begin with: `reviews[].` for `reviews[].text`."""
    path, mark, _ = name.rpartition(LIST)
    return f"{path}{mark}." if mark else ""


def check_lists(names: Iterable[str], file: str) -> None:
    """Raise UserError if names go through lists of which neither is in the other."""
    lists = sorted({name_list(name) for name in names}, key=len)
    for outer, inner in pairwise(lists):
        if not inner.startswith(outer):
            raise UserError(f"{file}: {outer[:-1]} and {inner[:-1]} are two lists; name one's")


def find_line_end(stretch: bytes, least: int) -> int:
    """Return the first place at or after `least` behind the end of a line, or -1."""
    return stretch.find(b"\n", max(least - 1, 0)) + 1 or -1


def find_blank_line_end(stretch: bytes, least: int) -> int:
    """Return the first place at or after `least` behind an empty line, or -1."""
    places = ((stretch.find(mark, max(least - 2, 0)), mark) for mark in (b"\n\n", b"\n\r\n"))
    return min((at + len(mark) for at, mark in places if at >= 0), default=-1)
