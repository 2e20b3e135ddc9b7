"""CSV and TSV: Amazon Customer Reviews, Kaggle's files, and any with a header and a column of texts."""

import csv
from collections.abc import Iterator
from typing import Any

from beam_jobs.formats.layout import Layout
from beam_jobs.formats.lines import Rejected, Stream, Tally, decode, line_blocks, rejected

TOO_LONG = "record too long"


def read(stream: Stream, layout: Layout, tally: Tally, header: bool = True) -> Iterator[tuple[int, dict] | Rejected]:
    """Yields (line on which the record begins, record). `header`: the first line names the columns."""
    csv.field_size_limit(max(layout.longest, 1))
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
                reason = str(error) if str(error) == TOO_LONG else "broken CSV"
                yield rejected(lines.first, reason, lines.raw())
                break  # the reader may be inside a quoted field: go on with a fresh one
            yield from lines.rejects()
            if header:
                header = False
            elif len(values) == len(columns):
                yield lines.first, dict(zip(columns, values, strict=True))
            elif values and (len(values) > 1 or values[0].strip()):
                yield rejected(lines.first, f"{'fewer' if len(values) < len(columns) else 'more'} columns", lines.raw())


def dialect(layout: Layout) -> dict[str, Any]:
    if not layout.quoted:
        return {"delimiter": layout.delimiter, "quoting": csv.QUOTE_NONE}
    return {"delimiter": layout.delimiter, "quotechar": '"', "doublequote": True}


class Lines:
    """Lines of text for the csv module, which remember where the record under way began and how long it is."""

    def __init__(self, stream: Stream, layout: Layout, tally: Tally) -> None:
        self._layout, self._tally = layout, tally
        self._lines = self._single(line_blocks(stream, layout.longest, tally))
        self._number = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._rejects: list[Rejected] = []
        self.first = 1
        self.ended = False

    def _single(self, blocks: Iterator[Any]) -> Iterator[tuple[int, bytes]]:
        for block in blocks:
            if isinstance(block, Rejected):
                self._rejects.append(block)
            else:
                yield from enumerate(block[1], block[0])

    def begin(self) -> None:
        self.first, self._parts, self._size = self._number + 1, [], 0

    def raw(self) -> bytes:
        return b"\n".join(self._parts)

    def rejects(self) -> Iterator[Rejected]:
        yield from self._rejects
        self._rejects.clear()

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        try:
            self._number, line = next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        if not self._parts:
            self.first = self._number
        self._parts.append(line)
        self._size += len(line)
        if self._size > self._layout.longest:
            raise csv.Error(TOO_LONG)
        return decode(line, self._tally, self._layout.encoding).lstrip("\ufeff").rstrip("\r").replace("\r", " ") + "\n"
