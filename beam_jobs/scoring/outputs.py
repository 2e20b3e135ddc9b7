"""Files of scores: the input with the answers beside its columns, or a table of its own.

The input's lines and rows are copied as they are: CSV and TSV, JSON lines and Parquet keep their
format. What cannot be copied so (workbooks, lists of reviews in a record, other formats) gives CSV.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.config import ScoreFormat
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import FORMULAS
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.core.parquet import open_parquet
from amazon_electra.beam_jobs.reading.compression import PlainStream
from amazon_electra.beam_jobs.reading.delimited import decode_line
from amazon_electra.beam_jobs.reading.fields import LIST
from amazon_electra.beam_jobs.reading.format import Layout
from amazon_electra.beam_jobs.reading.formats import find_format
from amazon_electra.beam_jobs.reading.ids import ID
from amazon_electra.beam_jobs.reading.lines import Tally
from amazon_electra.beam_jobs.reading.work_units import DumpFile
from amazon_electra.beam_jobs.scoring.comparison import ScoredUnit

LINE, IS_RECORD, RECORD = "line", "is_record", "record"  # where one begins, was it read, as JSON
FORMULA = f"^([{re.escape(''.join(FORMULAS))}])"
MAX_IDS = 1 << 20  # rows of a file whose ids are compared, in memory
BATCH_ROWS = 1 << 16  # of Parquet that are copied at a time
Answers = dict[str, Any]


def find_copy_ending(layout: Layout) -> str:
    """Return csv, tsv, jsonl or parquet; "" where a row is not one review, or takes no columns."""
    is_one = not any(LIST in name for _, name in layout.mapping)
    ending = find_format(layout.name).copy_ending if is_one else ""
    return "tsv" if ending == "csv" and layout.found.delimiter == "\t" else ending


def read_part(folder: str, unit: ScoredUnit) -> pa.Table:
    with storage.open_bytes(storage.join_path(folder, f"{unit.unit}.arrow")) as stream:
        return pa.ipc.open_file(stream).read_all()


class DelimitedAppender:
    """Adds cells to the records of CSV and TSV, whose bytes stay."""

    def __init__(self, layout: Layout, names: list[str]) -> None:
        self.layout, self.names = layout, names

    def begin(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines before the first record with the names of the answers."""
        skipped = self.layout.prefix.count(b"\n")
        header, found = lines[skipped:], self.layout.found
        end = self._count_lines(header)
        read = next(csv.reader(self._decode(header[:end]), **found.options), [])
        # a delimiter may end each row but this one
        missing = len(found.columns) - len(read)
        header[end - 1] = self._join(header[end - 1], [*[""] * missing, *self.names])
        return lines[:skipped] + header

    def append(self, lines: list[bytes], answers: Answers | None) -> list[bytes]:
        """Return a record's lines with its cells, those of repeated headers with its names."""
        end = self._count_lines(lines)
        values = answers or dict.fromkeys(self.names)
        lines[end - 1] = self._join(lines[end - 1], list(map(format_cell, values.values())))
        if rest := [place for place in range(end, len(lines)) if lines[place].strip()]:
            lines[rest[-1]] = self._join(lines[rest[-1]], self.names)
        return lines

    def _decode(self, lines: Iterable[bytes]) -> list[str]:
        return [decode_line(one.removesuffix(b"\n"), Tally(), self.layout) for one in lines]

    def _count_lines(self, lines: list[bytes]) -> int:
        """Return how many lines the first record has."""
        if any(line.strip() for line in lines[1:]):
            reader = csv.reader(self._decode(lines), **self.layout.found.options)
            with suppress(csv.Error):
                next(reader)
                return reader.line_num
        return 1

    def _join(self, line: bytes, cells: Sequence[str]) -> bytes:
        dialect = self.layout.found
        if dialect.has_quotes:
            buffer, escape = io.StringIO(), "\\" if dialect.has_escapes else None
            options: dict[str, Any] = {"delimiter": dialect.delimiter, "lineterminator": ""}
            options |= {"doublequote": not escape, "escapechar": escape}
            csv.writer(buffer, **options).writerow(["", *cells])
            added = buffer.getvalue()
        else:
            plain = (" ".join(one.replace(dialect.delimiter, " ").split()) for one in cells)
            added = "".join(dialect.delimiter + one for one in plain)
        record = line.rstrip(b"\r\n")
        return record + added.encode(self.layout.encoding, "replace") + line[len(record) :]


def append_fields(lines: list[bytes], answers: Answers | None, layout: Layout) -> list[bytes]:
    """Return lines, the first with its answers as fields of its JSON object, whose bytes stay."""
    if answers is None:
        return lines
    begun, _, behind = lines[0].rpartition(b"}")
    begun = begun.rstrip()
    comma = b"" if begun.endswith(b"{") else b","
    own = json.dumps(answers, ensure_ascii=layout.encoding != Layout.encoding)
    return [begun + comma + own[1:].encode() + behind, *lines[1:]]


def format_cell(value: Any) -> str:
    """Return a text as it is, nothing for None, other values as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def copy_lines(
    units: Sequence[ScoredUnit], folder: str, file: DumpFile, path: Path, names: list[str]
) -> None:
    """Copy the lines of a file, and add its answers (`names`) to those of each record."""
    appender = DelimitedAppender(file.layout, names)
    add, append = appender.append, appender.begin
    if find_copy_ending(file.layout) == "jsonl":
        add = partial(append_fields, layout=file.layout)
        append = partial(add, answers=None)
    stream = PlainStream(file.path, file.compression, file.member, file.layout.max_expansion)
    with stream, open(path, "wb") as output:
        lines, read, before = _read_lines(stream), 0, 0
        for unit in units:
            for row in sorted(read_part(folder, unit).to_pylist(), key=itemgetter(LINE)):
                line, is_record = before + row.pop(LINE), row.pop(IS_RECORD)
                held = list(islice(lines, max(line - 1 - read, 0)))
                read += len(held)
                output.writelines(append(held) if held else ())
                append = partial(add, answers=row if is_record else None)
            before += unit.lines
        held = list(lines)
        output.writelines(append(held) if held else ())


def _read_lines(stream: PlainStream) -> Iterator[bytes]:
    """Yield lines with their ends, however long they are."""
    held: list[bytes] = []
    while block := stream.read():
        *whole, rest = block.split(b"\n")
        for line in whole:
            yield b"".join([*held, line, b"\n"])
            held = []
        held.append(rest)
    if line := b"".join(held):
        yield line


def copy_rows(units: Sequence[ScoredUnit], folder: str, file: DumpFile, path: Path) -> None:
    """Copy the rows of a Parquet file with the columns of their answers."""
    parts = (read_part(folder, unit).drop_columns([LINE, IS_RECORD]) for unit in units)
    limits = Limits(file.layout.max_record_bytes, file.layout.max_expansion)
    answers = next(parts)
    try:
        with storage.open_bytes(file.path) as stream:
            source = open_parquet(stream, file.name, limits)
            schema = source.schema_arrow
            for field in answers.schema:
                schema = schema.append(field)
            with pq.ParquetWriter(path, schema, compression="zstd") as writer:
                for batch in source.iter_batches(BATCH_ROWS):
                    while answers.num_rows < batch.num_rows:
                        answers = pa.concat_tables([answers, next(parts)])
                    own = answers.slice(0, batch.num_rows).combine_chunks()
                    answers = answers.slice(batch.num_rows)
                    columns = [*batch.columns, *own.columns]
                    writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    except (OSError, pa.ArrowException) as error:
        storage.raise_storage_error(error, file.name)
        raise UserError(
            f"{file.name} cannot be copied ({error}); write a table of its own", "output_format"
        ) from error


def write_records(
    units: Sequence[ScoredUnit], folder: str, file: DumpFile, path: Path, names: list[str]
) -> None:
    """Write the records of a file and their answers as CSV, nested values as JSON."""
    columns = list(dict.fromkeys(name for unit in units for name in unit.columns))
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*columns, *names])
        for unit in units:
            for row in read_part(folder, unit).to_pylist():
                record = json.loads(row[RECORD])
                cells = [*map(record.get, columns), *map(row.get, names)]
                writer.writerow(map(format_cell, cells))


def write_table(
    units: Sequence[ScoredUnit],
    folder: str,
    file: DumpFile,
    path: Path,
    ending: ScoreFormat,
    counts: Counter[str],
) -> None:
    """Write a file's parts as one table, safe for spreadsheets, and count its first MAX_IDS ids."""

    def read_tables() -> Iterator[pa.Table]:
        row = 0
        for unit in units:
            table = read_part(folder, unit)
            if row < MAX_IDS:
                counts.update(one for one in table[ID].to_pylist() if one is not None)
            columns = {
                "file": pa.array([file.short_name] * unit.read, pa.string()),
                "row": pa.array(range(row + 1, row + unit.read + 1)),
                **{name: table[name] for name in table.column_names},
            }
            row += unit.read
            if ending == "csv":
                columns["text"] = pc.replace_substring_regex(columns["text"], FORMULA, r"'\1")
                for field in table.schema:
                    if pa.types.is_list(field.type):
                        lists = table[field.name].to_pylist()
                        texts = [one if one is None else json.dumps(one) for one in lists]
                        columns[field.name] = pa.array(texts, pa.string())
            yield pa.table(columns)

    tables = read_tables()
    first = next(tables)
    with (
        pq.ParquetWriter(path, first.schema, compression="zstd")
        if ending == "parquet"
        else pa_csv.CSVWriter(path, first.schema)
    ) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
