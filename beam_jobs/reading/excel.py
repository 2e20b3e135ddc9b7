"""Reads the first sheet of a workbook (xlsx, xlsb, xls, ods), or that of `--sheet`."""

import datetime
import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.format import Layout, RowFormat
from amazon_electra.beam_jobs.reading.lines import TOO_LONG, Item, Tally, make_reject

XLS = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
MEMBERS = {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}  # of a zip file that is a workbook
HEADER_ROWS = 20  # in which the names of the columns are looked for
MIN_SHARE = 0.8  # of the cells of the widest row, that a row of names has
FIRST_RECORDS = 100

Row = tuple[int, list[Any]]


def is_workbook(file: BinaryIO) -> bool:
    """Return whether a zip file is a workbook."""
    try:
        return not MEMBERS.isdisjoint(zipfile.ZipFile(file).namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def read_sheet(file: BinaryIO, name: str, layout: Layout) -> Iterator[Row]:
    """Yield number (from 1) and cells of the rows of a sheet that are not empty."""
    import python_calamine  # only where a workbook is read

    content, sheet = file.read(), layout.sheet
    if not content.startswith(XLS):
        with zipfile.ZipFile(io.BytesIO(content)) as members:
            size = sum(member.file_size for member in members.infolist())
        Limits(max_expansion=layout.max_expansion).check_expansion(name, len(content), size)
    try:
        workbook = python_calamine.load_workbook(io.BytesIO(content))
        if sheet and sheet not in workbook.sheet_names:
            raise UserError(f"{name} has {', '.join(workbook.sheet_names)}", "sheet", sheet)
        found = workbook.get_sheet_by_name(sheet or workbook.sheet_names[0])
    except (python_calamine.CalamineError, IndexError) as error:
        raise UserError(f"{name} is not a whole workbook ({error}); save it again") from None
    for number, row in enumerate(found.iter_rows(), found.start[0] + 1 if found.start else 1):
        cells = [read_cell(cell) for cell in row]
        if any(cell is not None for cell in cells):
            yield number, cells


def read_cell(cell: Any) -> Any:
    """Return a cell as its type says: None for an empty one, integers and dates as such."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    if isinstance(cell, datetime.time | datetime.timedelta):
        return str(cell)
    return None if isinstance(cell, str) and not cell.strip() else cell


def find_header(rows: list[Row]) -> int:
    """Return the place of the first row with names: one is known, or all cells are texts."""
    names = [{cell for cell in cells if isinstance(cell, str)} for _, cells in rows]
    filled = [sum(cell is not None for cell in cells) for _, cells in rows]
    least = MIN_SHARE * max(filled, default=0)
    wide = [place for place, count in enumerate(filled) if count >= least]
    known = [place for place in wide if fields.find_column("text", names[place])]
    texts = [place for place in wide if len(names[place]) == filled[place]]
    return next(iter([*known, *texts, *wide]), 0)


def read_records(file: BinaryIO, name: str, layout: Layout) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and record of the rows below the header; before them an empty record."""
    rows = read_sheet(file, name, layout)
    first = list(islice(rows, HEADER_ROWS))
    place = find_header(first)
    header = [" ".join(str(cell).split()) for cell in first[place][1]] if first else []
    named = [(i, one) for i, one in enumerate(header) if one != "None"]
    columns = [one for _, one in named]
    twice = [one for one in columns if columns.count(one) > 1]
    require(not twice, f"{name}: two columns are called {twice[:1]}; rename one")
    yield 0, dict.fromkeys(columns)
    for number, cells in (*first[place + 1 :], *rows):
        yield number, {one: cells[i] if i < len(cells) else None for i, one in named}


class Excel(RowFormat):
    """A "line" is a row of the sheet."""

    name, endings = "excel", ("xlsx", "xlsb", "xls", "ods")

    def recognize(self, start: bytes) -> bool:
        return start.startswith((XLS, b"PK\x03\x04"))

    def read_first(self, file: BinaryIO, name: str, layout: Layout) -> list[dict[str, Any]]:
        (_, empty), *records = islice(read_records(file, name, layout), FIRST_RECORDS + 1)
        return [record for _, record in records] or [empty]

    def cut(self, file: BinaryIO, size: int) -> Iterator[tuple[int, int, int]]:
        yield 0, 1, file.seek(0, io.SEEK_END)

    def count_rows(self, file: BinaryIO, layout: Layout) -> int:
        file.seek(0)
        return sum(1 for _ in read_records(file, self.name, layout)) - 1

    def read_rows(
        self, file: BinaryIO, name: str, layout: Layout, tally: Tally, start: int, stop: int | None
    ) -> Iterator[Item]:
        for tally.lines, record in islice(read_records(file, name, layout), 1, None):
            size = sum(len(cell) for cell in record.values() if isinstance(cell, str))
            is_long = size > layout.max_record_bytes
            yield (
                make_reject(tally.lines, TOO_LONG, b"", size) if is_long else (tally.lines, record)
            )
