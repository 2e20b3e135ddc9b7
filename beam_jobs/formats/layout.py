"""What has been found out about a file: everything its reader needs beside the bytes."""

from dataclasses import dataclass
from typing import Literal

Name = Literal["json_lines", "json_objects", "python_lines", "delimited", "fasttext", "snap", "parquet"]
NAMES: tuple[Name, ...] = ("json_lines", "json_objects", "python_lines", "delimited", "fasttext", "snap", "parquet")

Labels = Literal["polarity", "stars", "unknown"]


@dataclass(frozen=True)
class Layout:
    name: Name
    mapping: tuple[tuple[str, str], ...] = ()  # Review field, column
    columns: tuple[str, ...] = ()  # of a delimited file, from its header
    delimiter: str = ","
    quoted: bool = True  # fields of a delimited file may stand in quotes, and then hold delimiters and line ends
    escaped: bool = False  # a backslash stands before quotes within them, as Spark and MySQL write
    labels: Labels = "polarity"  # what those of a fastText file stand for
    titled: bool = True  # its lines begin with a title
    encoding: str = "utf-8"  # as declared; what does not follow it is read as cp1252
    longest: int = 16_000_000  # bytes of one record
