"""Lines of a byte stream in blocks, with a bound on the length of each, and their text."""

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

BLOCK_BYTES = 1 << 20
KEPT_BYTES = 1 << 16


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass
class Tally:
    """What a reader learns beside the records."""

    lines: int = 0  # so far; after the last record, all lines of the unit
    notes: Counter[str] = field(default_factory=Counter)


class Rejected(NamedTuple):
    """Something that should have been a record and is not."""

    line: int
    reason: str
    raw: bytes
    size: int  # bytes in the dump; `raw` is only the beginning of what is very long


def rejected(line: int, reason: str, raw: bytes, size: int | None = None) -> Rejected:
    return Rejected(line, reason, raw[:KEPT_BYTES], len(raw) if size is None else size)


def line_blocks(stream: Stream, longest: int, tally: Tally) -> Iterator[tuple[int, list[bytes]] | Rejected]:
    """Yields (number of the first line, lines without their ends); lines above `longest` bytes are rejected unread."""
    carry: list[bytes] = []
    carried, pending = 0, b""
    while block := pending or stream.read(BLOCK_BYTES):
        pending = b""
        lines = block.split(b"\n")
        last = lines.pop()
        if lines:
            lines[0] = b"".join([*carry, lines[0]])
            carry, carried = [], 0
            tally.lines += len(lines)
            yield from _within(tally.lines - len(lines) + 1, lines, longest)
        carry.append(last)
        carried += len(last)
        if carried > longest:
            tally.lines += 1
            pending = yield from _skip(stream, tally.lines, b"".join(carry))
            carry, carried = [], 0
    rest = b"".join(carry)
    if rest:
        tally.lines += 1
        yield from _within(tally.lines, [rest], longest)


def _within(number: int, lines: list[bytes], longest: int) -> Iterator[tuple[int, list[bytes]] | Rejected]:
    if max(map(len, lines)) <= longest:
        yield number, lines
        return
    for i, line in enumerate(lines):
        if len(line) > longest:
            yield rejected(number + i, "record too long", line)
        else:
            yield number + i, [line]


def _skip(stream: Stream, number: int, start: bytes) -> Generator[Rejected, None, bytes]:
    """Reads on to the end of a line that is too long; returns what follows it in the last block read."""
    size = len(start)
    while block := stream.read(BLOCK_BYTES):
        end = block.find(b"\n")
        if end >= 0:
            yield rejected(number, "record too long", start, size + end)
            return block[end + 1 :]
        size += len(block)
    yield rejected(number, "record too long", start, size)
    return b""


def decode(raw: bytes, tally: Tally, encoding: str = "utf-8") -> str:
    """As declared, else as cp1252, which every byte string is near enough to; counted."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        tally.notes["decoded_as_cp1252"] += 1
        return raw.decode("cp1252", errors="replace")
