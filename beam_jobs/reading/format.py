"""What every format of review files knows: one class, added by `register_format`, which everything
asks, never its name.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Literal

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.reading.compression import refuse_unless_text
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import Item, Stream, Tally, find_line_end

NOT_UTF8 = re.compile("[\udc80-\udcff]+")
PARTS_OF_UTF8 = re.compile("[\udce0-\udcf4][\udc80-\udcbf]{1,2}")
"""Characters that were cut off, and halves of characters beyond 16 bits."""
FOREIGN_BYTES = 8  # letters of other scripts stand side by side, those of cp1252 mostly alone
UNDEFINED = "\udc81\udc8d\udc8f\udc90\udc9d"
Stars = Literal["unsure", "polarity", "none"]
Names = Mapping[str, str]  # the column of a field


class Format:
    """A format that is a stream of text: any file of it can be cut at the ends of records."""

    name: ClassVar[str]  # what `--format` takes
    endings: ClassVar[tuple[str, ...]] = ()
    """Of names of its files, without the dot, for the watcher; the content alone decides."""
    has_only_strings: ClassVar[bool] = False
    """An id such as `17` is then a number, which in JSON and Parquet has a type."""
    may_end_lines_with_cr: ClassVar[bool] = False

    def recognize(self, start: bytes) -> bool:
        """Return whether a file is in this format by its beginning, without white space."""
        return False

    def refuse(self, head: bytes, layout: Layout, shown: str, is_packed: bool) -> None:
        """Raise UserError for a file that cannot be read, by its first uncompressed bytes."""
        refuse_unless_text(head, shown)
        if not self.may_end_lines_with_cr and b"\n" not in head and b"\r" in head.strip():
            raise UserError(f"{shown}: its lines end with CR alone; convert them to LF")
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

    def find_stars(self, layout: Layout) -> Stars:
        """Return whether the stars of a file are only of polarity, or none, where it shows that."""
        return "unsure"

    def forget_stars(self, layout: Layout) -> Layout:
        """Return a layout with which labels stay as they are: scores need none."""
        return layout

    def find_copy_ending(self, layout: Layout) -> str:
        """Return the ending of a copy of a file with more columns; "" where it takes none."""
        return ""

    def read(self, stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
        """Yield (line, record), or a reject, for a stretch of a file; `header`: its beginning."""
        raise NotImplementedError

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        """Return the first place from `least` on where a file may be cut, or -1."""
        return find_line_end(stretch, least)

    def is_stateless(self, layout: Layout) -> bool:
        """Return whether a boundary can be recognized without reading from the previous one on."""
        return True


@dataclass(frozen=True)
class Piece:
    """Some row groups of a file."""

    start: int
    stop: int
    plain_size: int  # bytes, estimated


class RowFormat(Format, ABC):
    """A binary format of rows in groups, of which a reader takes those that it wants."""

    def refuse(self, head: bytes, layout: Layout, shown: str, is_packed: bool) -> None:
        if is_packed:
            raise UserError(f"{shown} is a {self.name} file; give it neither packed nor in a zip")

    @abstractmethod
    def read_first(self, file: BinaryIO, name: str, layout: Layout) -> list[dict[str, Any]]:
        """Return the first records of a file, or one with an empty value of each column's type."""

    @abstractmethod
    def cut(self, file: BinaryIO, size: int) -> Iterator[Piece]:
        """Yield the groups of a file in pieces of about `size` bytes; one at least."""

    def add_unused(self, file: BinaryIO, layout: Layout) -> Layout:
        """Return a layout whose records have the unused columns too that may be of classes."""
        return layout

    @abstractmethod
    def count_rows(self, file: BinaryIO, layout: Layout) -> int: ...

    @abstractmethod
    def read_rows(
        self,
        file: BinaryIO,
        layout: Layout,
        tally: Tally,
        start: int = 0,
        stop: int | None = None,
        name: str = "a file",
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
