"""Lines of a byte stream in blocks, with a bound on the length of each."""

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

BLOCK_BYTES = 1 << 20


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


def line_blocks(stream: BinaryIO, longest: int, tally: Tally) -> Iterator[tuple[int, list[bytes]] | Rejected]:
    """Yields (number of the first line, lines without their ends); lines above `longest` bytes are rejected unread."""
    carry = b""
    while block := stream.read(BLOCK_BYTES):
        lines = block.split(b"\n")
        lines[0] = carry + lines[0]
        carry = lines.pop()
        if lines:
            tally.lines += len(lines)
            yield from _within(tally.lines - len(lines) + 1, lines, longest)
        if len(carry) > longest:
            tally.lines += 1
            carry = yield from _skip(stream, tally.lines, carry)
    if carry:
        tally.lines += 1
        yield from _within(tally.lines, [carry], longest)


def _within(number: int, lines: list[bytes], longest: int) -> Iterator[tuple[int, list[bytes]] | Rejected]:
    if all(len(line) <= longest for line in lines):
        yield number, lines
        return
    for i, line in enumerate(lines):
        if len(line) > longest:
            yield too_long(number + i, line, len(line))
        else:
            yield number + i, [line]


def _skip(stream: BinaryIO, number: int, start: bytes) -> Generator[Rejected, None, bytes]:
    """Reads on to the end of a line that is too long; returns what follows it in the last block read."""
    size = len(start)
    while block := stream.read(BLOCK_BYTES):
        end = block.find(b"\n")
        if end >= 0:
            yield too_long(number, start, size + end)
            return block[end + 1 :]
        size += len(block)
    yield too_long(number, start, size)
    return b""


KEPT_BYTES = 1 << 16


def too_long(line: int, start: bytes, size: int) -> Rejected:
    return Rejected(line, "record too long", start[:KEPT_BYTES], size)
