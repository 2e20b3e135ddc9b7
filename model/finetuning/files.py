"""Open files and read rows of tables, columns and labels: what the formats share."""

import bz2
import csv
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.nesting import load_json

TABBED = (".tsv", ".txt")
HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
MAX_FIELD = 1 << 26
"""Characters of a cell."""


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """Open a plain, gzip or bzip2 file as UTF-8, without byte order mark and wrong bytes."""
    with path.open("rb") as file:
        start = file.read(3)
    opener: Any = gzip.open if start[:2] == b"\x1f\x8b" else bz2.open if start == b"BZh" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline=newline) as text:
            yield text
    except (EOFError, zlib.error, csv.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk
            raise
        raise UserError(f"{path}: damaged or cut off ({error}); fetch it again") from error


@dataclass(frozen=True)
class Row:
    """A record of a file; UserErrors about it name file and line."""

    fields: Mapping[str, Any]
    path: Path
    line: int

    def refuse(self, why: str) -> NoReturn:
        raise UserError(f"{self.path}, line {self.line}: {why}")

    def get(self, name: str) -> Any:
        if is_missing(self.fields.get(name)):
            there = ", ".join(map(str, self.fields))
            self.refuse(f"no value in column {name!r}; there are {there}")
        return self.fields[name]

    def read_number(self, name: str) -> float:
        written = self.get(name)
        try:
            number = float(str(written))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.refuse(f"label {written!r} is not a number")
        return number

    def find_class(self, name: str, classes: Mapping[str, int]) -> int:
        if (label := str(self.get(name))) not in classes:
            self.refuse(f"label {label!r} is none of {', '.join(classes)}")
        return classes[label]

    def is_short(self, names: Iterable[str]) -> bool:
        """Return whether a line of a delimited file ends before one of these columns."""
        return any(name in self.fields and is_missing(self.fields[name]) for name in names)


def is_missing(value: object) -> bool:
    """Return whether a value is None, or the NaN that pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def read_table_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file, or of a tab-separated one, which has no quotes."""
    is_tabbed = path.name.removesuffix(".gz").removesuffix(".bz2").endswith(TABBED)
    csv.field_size_limit(MAX_FIELD)  # of this process: readers of dumps set another
    with open_text(path, newline="") as file:
        rows = csv.DictReader(
            file,
            delimiter="\t" if is_tabbed else ",",
            quoting=csv.QUOTE_NONE if is_tabbed else csv.QUOTE_MINIMAL,
        )
        for row in rows:
            yield Row(row, path, rows.line_num)


def read_json_rows(path: Path) -> Iterator[Row]:
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                fields = parse_json_text(line)
            except ValueError as error:
                fields = getattr(error, "msg", error)
            row = Row(fields, path, number)
            if not isinstance(fields, dict):
                row.refuse(f"no JSON object ({str(fields)[:60]})")
            yield row


def parse_json_text(text: str) -> Any:
    """Parse JSON; half a character, which no tokenizer takes, becomes a question mark."""
    value = load_json(text)
    if not HALF_CHARACTER.search(text):
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
