"""Open files and read rows of tables, columns and labels: what the formats share."""

import bz2
import csv
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.core.nesting import load_json

TABBED = (".tsv", ".txt")
HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
LIMITS = Limits(remedy="unpack it first")
"""Limits of a task's file; those of a dump are options of its jobs."""


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """Open a plain, gzip or bzip2 file as UTF-8, without byte order mark and wrong bytes."""
    with path.open("rb") as file:
        start = file.read(3)
    opener: Any = gzip.open if start[:2] == b"\x1f\x8b" else bz2.open if start == b"BZh" else open
    with (
        _report_damage(path),
        io.BufferedReader(_LimitedReader(opener(path, "rb"), path)) as limited,
        io.TextIOWrapper(limited, encoding="utf-8-sig", errors="replace", newline=newline) as text,
    ):
        yield text


class _LimitedReader(io.RawIOBase):
    """Reads a file that may be packed; UserError once it holds more than a file of its size may."""

    def __init__(self, file: Any, path: Path):
        self._file, self._path = file, path
        self._packed, self._unpacked = path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size: int = self._file.readinto(buffer)
        self._unpacked += size
        LIMITS.check_expansion(str(self._path), self._packed, self._unpacked)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def _read_lines(file: TextIO, path: Path) -> Iterator[str]:
    """Yield the lines of an open file; UserError at one that is longer than a record may be."""
    for number in itertools.count(1):
        line = file.readline(LIMITS.max_record_bytes)
        if not line:
            return
        if len(line) == LIMITS.max_record_bytes:
            raise UserError(f"{path}, line {number}: longer than a record may be")
        yield line


@contextmanager
def _report_damage(path: Path) -> Iterator[None]:
    """Turn errors about a file's content into a UserError; those of a disk have a number."""
    try:
        yield
    except (EOFError, zlib.error, csv.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UserError(f"{path}: damaged or cut off ({error}); fetch it again") from error


def read_table_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and row of a CSV file, or of a tab-separated one, which has no quotes."""
    is_tabbed = path.name.removesuffix(".gz").removesuffix(".bz2").endswith(TABBED)
    csv.field_size_limit(LIMITS.max_record_bytes)  # of this process: readers of dumps set another
    with open_text(path, newline="") as file:
        rows = csv.DictReader(
            _read_lines(file, path),
            delimiter="\t" if is_tabbed else ",",
            quoting=csv.QUOTE_NONE if is_tabbed else csv.QUOTE_MINIMAL,
        )
        for row in rows:
            yield rows.line_num, row


def parse_json_text(text: str) -> Any:
    """Parse JSON; half a character, which no tokenizer takes, becomes a question mark."""
    value = load_json(text)
    if not HALF_CHARACTER.search(text):
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def parse_json_object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = parse_json_text(line)
    except ValueError as error:
        row = getattr(error, "msg", error)
    if not isinstance(row, dict):
        raise UserError(f"{path}, line {number}: no JSON object ({str(row)[:60]})")
    return row


def get_column(row: Mapping[str, Any], name: str, path: Path, line: int) -> Any:
    """Return a field; raise a UserError with file and line where it is missing."""
    if is_missing(row.get(name)):
        there = ", ".join(str(key) for key in row)
        raise UserError(f"{path}, line {line}: no value in column {name!r}; there are {there}")
    return row[name]


def is_missing(value: object) -> bool:
    """Return whether a value is None, or the NaN that pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_short(row: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Return whether a line of a delimited file ends before one of these columns."""
    return any(name in row and is_missing(row[name]) for name in names)


def parse_number(written: object, path: Path, line: int) -> float:
    """Return a label that is a number."""
    try:
        number = float(str(written))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{path}, line {line}: label {written!r} is not a number")
    return number


def find_class(label: Any, classes: Mapping[str, int], path: Path, line: int) -> int:
    """Return the index of a label; raise a UserError that says where an unknown one stands."""
    if str(label) not in classes:
        raise UserError(f"{path}, line {line}: label {label!r} is none of {', '.join(classes)}")
    return classes[str(label)]
