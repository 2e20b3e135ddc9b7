"""Holds what detection found out about a file: all that its reader needs beside the bytes."""

from dataclasses import dataclass
from typing import Literal

from amazon_electra.beam_jobs.core.limits import Limits

Labels = Literal["polarity", "stars", "unknown"]


@dataclass(frozen=True)
class Layout:
    name: str  # of the format, its class: formats.find_format
    mapping: tuple[tuple[str, str], ...] = ()  # Review field, column
    unused: tuple[tuple[str, str], ...] = ()  # column that gives no field, closest Review field
    joined: tuple[str, ...] = ()  # columns whose texts, joined, are the text
    columns: tuple[str, ...] = ()  # of a delimited file, from its header
    descriptions: int = 0  # records below the header of a delimited file that describe its columns
    delimiter: str = ","
    has_quotes: bool = True  # fields in quotes may hold delimiters and line ends
    has_escapes: bool = False  # quotes within quotes follow a backslash (Spark, MySQL)
    has_spaces: bool = False  # before quotes: spaces that begin a field are none of it
    labels: Labels = "polarity"  # what those of a fastText file stand for
    has_titles: bool = True  # its lines begin with a title
    in_blocks: bool = False  # a document of plain text is a block of lines, and not a line
    encoding: str = "utf-8"  # as declared; what does not follow it is read as cp1252
    records: str = ""  # path of keys to the list of reviews, given or found
    prefix: bytes = b""  # of a file that is an object around a list: all before the first review
    partition: tuple[tuple[str, str | None], ...] = ()  # columns that names of folders give
    sheet: str = ""  # of a workbook; the first one
    max_record_bytes: int = Limits.max_record_bytes  # of one record
    max_expansion: float = Limits.max_expansion  # times its size that a file may expand to

    @property
    def read_columns(self) -> set[str]:
        """The columns that the records must have, for the fields of a review."""
        text = dict(self.mapping).get("text", "")
        names = {name for _, name in self.mapping if not self.joined or name != text}
        return names | {*self.joined}
