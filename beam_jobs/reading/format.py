"""What every format of review files knows, and a `Layout`: what was found out about a file."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.reading.compression import refuse_bytes
from amazon_electra.beam_jobs.reading.lines import (
    Item,
    Reject,
    Stream,
    Tally,
    find_line_end,
    read_lines,
)

CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32)])
MAX_CONTROL_SHARE = 0.05  # of the bytes of a text
NOT_UTF8 = re.compile("[\udc80-\udcff]+")
PARTS_OF_UTF8 = re.compile("[\udce0-\udcf4][\udc80-\udcbf]{1,2}")  # cut off, or halves
FOREIGN_BYTES = 8  # letters of other scripts stand side by side, those of cp1252 mostly alone
UNDEFINED = "\udc81\udc8d\udc8f\udc90\udc9d"
Names = Mapping[str, str]  # the column of a field


@dataclass(frozen=True)
class Layout:
    """All that the reader of a file needs beside its bytes."""

    name: str  # of the format, its class: formats.find_format
    mapping: tuple[tuple[str, str], ...] = ()  # Review field, column
    unused: tuple[str, ...] = ()  # columns that give no field, the first of them
    joined: tuple[tuple[str, tuple[str, ...]], ...] = ()  # name such as pros+cons, its columns
    found: Any = None  # what the format itself found at the beginning: a data class of its own
    encoding: str = "utf-8"  # as declared; what does not follow it is read as cp1252
    records: str = ""  # path of keys to the list of reviews, given or found
    prefix: bytes = b""  # all before the first record
    sheet: str = ""  # of a workbook; the first one
    max_record_bytes: int = Limits.max_record_bytes  # of one record
    max_expansion: float = Limits.max_expansion  # times its size that a file may expand to

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The column of the text, or those whose texts are one."""
        text = dict(self.mapping).get("text", "")
        return dict(self.joined).get(text, (text,))

    @property
    def read_columns(self) -> set[str]:
        """The columns that the records must have, for the fields of a review."""
        parts = dict(self.joined)
        return {part for _, name in self.mapping for part in parts.get(name, (name,))}


class Format:
    """A format that is a stream of text: any file of it can be cut at the ends of records."""

    name: ClassVar[str]  # what `--format` takes
    endings: ClassVar[tuple[str, ...]] = ()  # of names of files, for the watcher

    copy_ending: ClassVar[str] = ""  # of a copy with more columns; "": it takes none

    def recognize(self, start: bytes) -> bool:
        """Return whether a file is in this format by its beginning, without white space."""
        return False

    def refuse(self, head: bytes, layout: Layout, shown: str, is_packed: bool) -> None:
        """Raise UserError for a file that cannot be read, by its first uncompressed bytes."""
        if len(head) - len(head.translate(None, CONTROLS)) > MAX_CONTROL_SHARE * len(head):
            raise refuse_bytes(head, shown)
        if layout.encoding == Layout.encoding and not head.isascii():
            refuse_other_encodings(head, shown)

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        """Return the layout with what the format finds at the beginning of a file (`found`)."""
        return layout

    def cut_head(self, head: bytes, layout: Layout) -> bytes:
        """Return the beginning of a file without the half of a record at its end."""
        return head

    def list_columns(self, layout: Layout, records: list[dict[str, Any]]) -> list[str]:
        """Return the names of the columns in their order, by the first records."""
        return sorted({name for record in records for name in record})

    def read(self, stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
        """Yield (line, record), or a reject, for a stretch of a file; `header`: its beginning."""
        for item in self.split(stream, layout, tally):
            if isinstance(item, Reject):
                yield item
            elif found := self.parse(item[0], item[1], layout, tally):
                yield found

    def split(self, stream: Stream, layout: Layout, tally: Tally) -> Iterator[Any]:
        """Yield (number, line) of the lines, or blocks of lines, that are records, or rejects."""
        return read_lines(stream, layout.max_record_bytes, tally)

    def parse(self, number: int, line: bytes, layout: Layout, tally: Tally) -> Item | None:
        """Return (number, record) or a reject of what `split` yields, None of what is blank."""
        raise NotImplementedError

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        """Return the first place from `least` on where a file may be cut, or -1."""
        return find_line_end(stretch, least)

    def is_stateless(self, layout: Layout) -> bool:
        """Return whether a boundary can be recognized without reading from the previous one on."""
        return True


class RowFormat(Format, ABC):
    """A binary format of rows in groups, of which a reader takes those that it wants."""

    def refuse(self, head: bytes, layout: Layout, shown: str, is_packed: bool) -> None:
        if is_packed:
            raise UserError(f"{shown} is a {self.name} file; give it neither packed nor in a zip")

    @abstractmethod
    def read_first(self, file: BinaryIO, name: str, layout: Layout) -> list[dict[str, Any]]:
        """Return the first records of a file, or one with an empty value of each column's type."""

    @abstractmethod
    def cut(self, file: BinaryIO, size: int) -> Iterator[tuple[int, int, int]]:
        """Yield first group, end and unpacked bytes of pieces of about `size` bytes."""

    @abstractmethod
    def count_rows(self, file: BinaryIO, layout: Layout) -> int: ...

    @abstractmethod
    def read_rows(
        self, file: BinaryIO, name: str, layout: Layout, tally: Tally, start: int, stop: int | None
    ) -> Iterator[Item]:
        """Yield (row, record), or a reject, of the groups from `start` to `stop`."""


def refuse_other_encodings(head: bytes, shown: str) -> None:
    """Raise UserError where half of the bytes that are not UTF-8 stand in runs of three, or a
    twentieth is undefined in cp1252.
    """
    runs = NOT_UTF8.findall(PARTS_OF_UTF8.sub("", head.decode(errors="surrogateescape")))
    count, long = len("".join(runs)), len("".join(run for run in runs if len(run) > 2))
    undefined = sum(run.count(byte) for run in runs for byte in UNDEFINED)
    if count >= FOREIGN_BYTES and (2 * long > count or 20 * undefined > count):
        raise UserError(
            f"{shown} is neither in UTF-8 nor in cp1252; it may be in cp1251 (Russian), gb18030 "
            "(Chinese), shift_jis (Japanese) or mac_roman",
            "encoding",
        )
