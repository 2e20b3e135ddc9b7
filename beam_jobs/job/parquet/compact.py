"""Reads the whole numbers of a header in Thrift's compact protocol, as Parquet's are.

pyarrow shows no header of a page, and ends the process where a footer contradicts itself. The
protocol: github.com/apache/thrift, doc/specs/thrift-compact-protocol.md.
"""

import pyarrow as pa

BOOLEANS, INT_32, INT_64, BINARY, LIST, STRUCT = (1, 2), 5, 6, 8, 9, 12
"""Types of fields."""
SKIPPED_BYTES = {1: 1, 2: 1, 3: 1, 7: 8}
"""Bytes of booleans in a list, a byte and a floating-point number."""
MOST_FIELDS = 1 << 15
DEEPEST = 64
"""Structures and lists within one another."""
Numbers = dict[tuple[int, ...], int]
"""Numbers by the fields, and MOST_FIELDS + the places in lists, that lead to them."""


class CompactReader:
    """Keeps the whole numbers of so many bits (INT_32, INT_64), skips all else.

    Raises IndexError where the content ends too early, and ArrowInvalid for what no writer writes
    and other readers may understand in another way: a field that occurs twice, for one.
    """

    def __init__(self, content: bytes, kept: int) -> None:
        self.content, self.kept, self.at = content, kept, 0
        self.numbers: Numbers = {}

    def read_struct(self, path: tuple[int, ...] = ()) -> None:
        """Read the fields of a structure; `path` leads to it."""
        field = 0
        while kind := (head := self._read_byte()) & 15:
            field = field + (head >> 4) if head >> 4 else _undo_zigzag(self._read_number(16))
            if not 0 < field < MOST_FIELDS or len(path) > DEEPEST:
                raise pa.ArrowInvalid("a header has too many fields")
            if kind not in BOOLEANS:
                self._read_value(kind, (*path, field))

    def _read_value(self, kind: int, path: tuple[int, ...]) -> None:
        if kind == self.kept:
            if path in self.numbers:
                raise pa.ArrowInvalid("a header has a field twice")
            self.numbers[path] = _undo_zigzag(self._read_number(32 if kind == INT_32 else 64))
        elif kind in (4, INT_32, INT_64):
            self._read_number(64)
        elif kind == BINARY:
            self._skip_bytes(self._read_number(31))
        elif kind == STRUCT:
            self.read_struct(path)
        elif kind == LIST:
            head = self._read_byte()
            for place in range(self._read_number(31) if head >> 4 == 15 else head >> 4):
                self._read_value(head & 15, (*path, MOST_FIELDS + place))
        elif kind in SKIPPED_BYTES:
            self._skip_bytes(SKIPPED_BYTES[kind])
        else:
            raise pa.ArrowInvalid("a header has a field of a type that Parquet does not use")

    def _skip_bytes(self, count: int) -> None:
        self.at += count
        if self.at > len(self.content):
            raise IndexError

    def _read_byte(self) -> int:
        byte = self.content[self.at]
        self.at += 1
        return byte

    def _read_number(self, bits: int) -> int:
        """Return a number of at most so many bits, whose sign is in the last of them."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self._read_byte()
            value |= (byte & 127) << shift
            if value >> bits:
                break
            if byte < 128:
                return value
        raise pa.ArrowInvalid(f"a header has a number of more than {bits} bits")


def _undo_zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
