"""CSV and TSV: Amazon Customer Reviews, Kaggle's files, and any with a header and a column of texts."""

import csv
from collections.abc import Iterator
from typing import Any

from beam_jobs.formats.layout import Layout
from beam_jobs.formats.lines import Rejected, Stream, Tally, decode, line_blocks, rejected

TOO_LONG, BROKEN = "record too long", "broken CSV"
LOOK_BACK = 64  # lines of one record; whether they are records of their own is looked at again and again
csv.field_size_limit(2**31 - 1)  # of the whole process; `Lines` keeps to the layout's own limit
ENOUGH, SOME, ANY = 12, 4, 1  # delimiters in lines that would be whole records, the less the more there is in doubt


def read(stream: Stream, layout: Layout, tally: Tally, header: bool = True) -> Iterator[tuple[int, dict] | Rejected]:
    """Yields (line on which the record begins, record). `header`: the first line names the columns.

    A quote that never ends costs its own record only: the lines after it that are records are read again.
    """
    lines = Lines(stream, layout, tally)
    columns = layout.columns
    while not lines.ended:
        records = csv.reader(lines, **dialect(layout))
        while True:
            lines.begin()
            try:
                values = next(records)
            except StopIteration:
                yield from lines.rejects()
                break
            except csv.Error as error:
                yield from lines.rejects()
                swallowed = lines.give_back(ANY)
                reason = str(error) if str(error) == TOO_LONG and not swallowed else BROKEN
                yield rejected(lines.first, reason, lines.raw())
                break  # the reader may be inside a quoted field: go on with a fresh one
            yield from lines.rejects()
            if header:
                header = False
            elif len(lines.parts) > 1 and lines.give_back(needed(lines, values)):
                yield rejected(lines.first, BROKEN, lines.raw())
                break
            elif len(values) == len(columns):
                yield lines.first, dict(zip(columns, values, strict=True))
            elif values and (len(values) > 1 or values[0].strip()):
                yield rejected(lines.first, f"{'fewer' if len(values) < len(columns) else 'more'} columns", lines.raw())


def dialect(layout: Layout) -> dict[str, Any]:
    if not layout.quoted:
        return {"delimiter": layout.delimiter, "quoting": csv.QUOTE_NONE}
    escape = {"escapechar": "\\"} if layout.escaped else {}
    return {"delimiter": layout.delimiter, "quotechar": '"', "doublequote": True, **escape}


def needed(lines: "Lines", values: list[str]) -> int:
    """How many delimiters in lines that would be whole records show that a record of several lines is none."""
    if lines.ended:  # inside quotes, for the end of a record is seen before
        return ANY
    try:
        list(csv.reader(lines.texts(), strict=True, **dialect(lines.layout)))
    except csv.Error:  # a quote that ends no field
        return SOME
    return ENOUGH if len(values) == len(lines.layout.columns) else SOME


class Lines:
    """Lines of text for the csv module, which remember where the record under way began and how long it is."""

    def __init__(self, stream: Stream, layout: Layout, tally: Tally) -> None:
        self.layout, self._tally = layout, tally
        self._lines = self._single(line_blocks(stream, layout.longest, tally))
        self._again: list[tuple[int, bytes]] = []  # the next one last
        self._size = 0
        self._rejects: list[Rejected] = []
        self.parts: list[tuple[int, bytes]] = []
        self.first = 1
        self.ended = False

    def _single(self, blocks: Iterator[Any]) -> Iterator[tuple[int, bytes]]:
        for block in blocks:
            if isinstance(block, Rejected):
                self._rejects.append(block)
            else:
                yield from enumerate(block[1], block[0])

    def begin(self) -> None:
        self.parts, self._size = [], 0

    def raw(self) -> bytes:
        return b"\n".join(line for _, line in self.parts)

    def texts(self) -> list[str]:
        return [as_text(line, Tally(), self.layout) for _, line in self.parts]

    def rejects(self) -> Iterator[Rejected]:
        yield from self._rejects
        self._rejects.clear()

    def give_back(self, enough: int) -> bool:
        """Ends the record under way before the first of its lines that would be a whole one, if there are enough."""
        weights = [_weight(line, self.layout) for _, line in self.parts[1:]]
        if sum(weights) < enough or (enough == ENOUGH and not _mostly(weights)):
            return False
        first = 1 + next(i for i, weight in enumerate(weights) if weight)
        self._again += self.parts[: first - 1 : -1]
        self.parts = self.parts[:first]
        self.ended = False
        return True

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        try:
            part = self._again.pop() if self._again else next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        if not self.parts:
            self.first = part[0]
        self.parts.append(part)
        self._size += len(part[1])
        if self._size > self.layout.longest:
            raise csv.Error(TOO_LONG)
        if len(self.parts) % LOOK_BACK == 0:
            weights = [_weight(line, self.layout) for _, line in self.parts[-LOOK_BACK:]]
            if sum(weights) >= ENOUGH and _mostly(weights):
                raise csv.Error(BROKEN)
        return as_text(part[1], self._tally, self.layout)


def as_text(line: bytes, tally: Tally, layout: Layout) -> str:
    return decode(line, tally, layout.encoding).lstrip("\ufeff").rstrip("\r").replace("\r", " ") + "\n"


def _weight(line: bytes, layout: Layout) -> int:
    """How much a line looks like a record of its own: by its delimiters, of which prose has no tabs, and its quotes."""
    delimiter, wanted = layout.delimiter.encode(), len(layout.columns) - 1
    if delimiter == b"\t":
        return ENOUGH if line.count(delimiter) == wanted > 0 else 0
    if quotes := line.startswith(b'"') or delimiter + b'"' in line:
        try:
            (values,) = csv.reader([as_text(line, Tally(), layout)], strict=True, **dialect(layout))
        except (csv.Error, ValueError):
            values = []
        if len(values) == wanted + 1:
            return ENOUGH
    return max(wanted, SOME * quotes) if line.count(delimiter) == wanted > 0 else 0


def _mostly(weights: list[int]) -> bool:
    return sum(map(bool, weights)) * 4 >= len(weights) * 3
