"""Reads a byte stream as lines of bounded length and decodes them."""

import codecs
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

BLOCK_BYTES = 1 << 20
RAW_REJECT_BYTES = 1 << 16
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


Item = tuple[int, dict[str, Any]] | Reject  # its line (of Parquet: row), a record; or a reject


def make_reject(line: int, reason: str, raw: bytes, size: int | None = None) -> Reject:
    return Reject(line, reason, raw[:RAW_REJECT_BYTES], len(raw) if size is None else size)


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


def read_blocks(stream: Stream, longest: int, tally: Tally) -> Iterator[tuple[int, bytes] | Reject]:
    """Yield (number of the first, lines) of the blocks of lines between empty lines; a reject of a
    block above `longest` bytes, of which only the beginning is held.
    """
    held, size = list[tuple[int, bytes]](), 0

    def finish_block() -> tuple[int, bytes] | Reject:
        first, block = held[0][0], b"\n".join(line for _, line in held)
        return make_reject(first, TOO_LONG, block, size) if size > longest else (first, block)

    for item in read_lines(stream, longest, tally):
        if isinstance(item, Reject):
            yield item
        elif item[1].strip():
            if size <= longest:
                held.append(item)
            size += len(item[1]) + 1
        elif held:
            yield finish_block()
            held, size = [], 0
    if held:
        yield finish_block()


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
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error("amazon_electra_cp1252", _decode_as_cp1252)


def find_line_end(stretch: bytes, least: int) -> int:
    """Return the first place at or after `least` behind the end of a line, or -1."""
    return stretch.find(b"\n", max(least - 1, 0)) + 1 or -1
