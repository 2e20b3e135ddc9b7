"""Reads CSV and TSV: Customer Reviews, Kaggle's files, any with a header and a text column."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import compress, islice
from operator import itemgetter
from typing import Any

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.labels.values import LABEL, MISSING, fold
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.format import Format, Layout, Names
from amazon_electra.beam_jobs.reading.lines import (
    TOO_LONG,
    Item,
    Reject,
    Stream,
    Tally,
    decode_text,
    find_line_end,
    make_reject,
    read_lines,
)

DELIMITERS = "\t,;|"
MAX_HEADER, MAX_HEADER_LINES = 200, 10  # characters of the first name, and lines of all names
BROKEN, FEWER, MORE = "broken CSV", "fewer columns", "more columns"
DESCRIPTION = "description of columns"
csv.field_size_limit(2**31 - 1)  # of the whole process; `RecordLines` keeps to the layout's own
SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?sep=([\t,;|])\r?\n", re.IGNORECASE)
BLANK_LINES = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*\r?\n)+")
FIRST_ROWS = 50  # records that show how a file's rows end, and what the first of them are
SMALL_WINDOW_BYTES = 1 << 12
MAX_DESCRIPTIONS = 3
MIN_NUMBERS = 5  # in a column, from which on it is one of numbers
MAX_GROUPS = 4  # rows of groups of columns, or of a title, above the header
NUMBER, DIGIT = re.compile(r"[-+]?\d+([.,]\d+)?"), re.compile(r"\d")
MIN_NUMBERED = 0.8  # of a column's first values have a digit: ids, stars, dates
IMPORT_ID = '{"importid"'  # in each column of a Qualtrics export, below the questions
TYPES = {*fields.TABLES["types"]}


@dataclass(frozen=True)
class Dialect:
    """How the rows of a file are written."""

    columns: tuple[str, ...] = ()  # from the header
    descriptions: int = 0  # records below the header that describe its columns
    delimiter: str = ","
    has_quotes: bool = True  # fields in quotes may hold delimiters and line ends
    has_escapes: bool = False  # quotes within quotes follow a backslash (Spark, MySQL)
    numbered: tuple[str, ...] = ()  # columns with a digit in nearly all of their first values

    @property
    def options(self) -> dict[str, Any]:
        """What csv.reader has to know."""
        return {
            "delimiter": self.delimiter,
            "quoting": csv.QUOTE_MINIMAL if self.has_quotes else csv.QUOTE_NONE,
            "escapechar": "\\" if self.has_escapes else None,
        }


class RecordLines(Iterator[str]):
    """Gives lines to the csv module and keeps those of the record under way."""

    def __init__(self, stream: Stream, layout: Layout, tally: Tally) -> None:
        self.layout, self.tally, self.dialect = layout, tally, layout.found
        self._lines = read_lines(stream, layout.max_record_bytes, tally)
        self._again: list[tuple[int, bytes]] = []  # the next one last
        self._size = 0  # bytes of the record
        self._too_long: list[Reject] = []  # lines
        self.parts: list[tuple[int, bytes]] = []
        self.values: list[str] = []  # of the record
        self.has_met_end = False  # within the record
        self.position = 0  # bytes before the next line

    def __next__(self) -> str:
        try:
            part = self._again.pop() if self._again else next(self._lines)
            while isinstance(part, Reject):
                self.position += part.size + 1
                self._too_long.append(part)
                part = next(self._lines)
        except StopIteration:
            self.has_met_end = True
            raise
        self.parts.append(part)
        self._size += len(part[1])
        self.position += len(part[1]) + 1
        if self._size > self.layout.max_record_bytes:
            raise csv.Error(TOO_LONG)
        return decode_line(part[1], self.tally, self.layout)

    def reject(self, reason: str) -> Reject:
        return make_reject(self.parts[0][0], reason, b"\n".join(line for _, line in self.parts))

    def read(self, header: bool) -> Iterator[Item]:
        """Yield (line where the record begins, record); the `header` names the columns."""
        columns = list(self.dialect.columns)
        named = [n for field, n in self.layout.mapping if field.startswith(LABEL)]
        repeated = [name for name in named if columns.count(name) > 1]
        described = 0  # records that are still to come and describe the columns
        records = csv.reader(self, **self.dialect.options)
        while True:
            self.parts, self._size, self.has_met_end = [], 0, False
            try:
                values, broken = next(records, None), ""
            except csv.Error as error:
                values, broken = [], TOO_LONG if str(error) == TOO_LONG else BROKEN
            yield from self._too_long
            self._too_long.clear()
            if values is None:
                return
            self.values = values
            if not header and (self.has_met_end or not self.is_whole()):
                broken = broken or BROKEN  # a quote that never ends, or ends within a field
            if broken:  # read the other lines again
                self.position -= sum(len(line) + 1 for _, line in self.parts[1:])
                self._again += self.parts[:0:-1]
                self.parts = self.parts[:1]
                yield self.reject(broken)
                records = csv.reader(self, **self.dialect.options)
            elif header:
                header, described = False, self.dialect.descriptions
            elif is_header(values, columns):  # of files put together
                self.tally.notes["repeated_headers"] += 1
                described = self.dialect.descriptions
            elif described and len(values) == len(columns):
                described -= 1
                yield self.reject(DESCRIPTION)
            elif len(values) == len(columns):
                record: dict[str, Any] = dict(zip(columns, values, strict=True))
                for name in repeated:  # as Jira writes a list
                    record[name] = list(compress(values, map(name.__eq__, columns)))
                yield self.parts[0][0], record
            elif values and (len(values) > 1 or values[0].strip()):
                yield self.reject(FEWER if len(values) < len(columns) else MORE)

    def is_whole(self) -> bool:
        """Return whether lines are one record: all columns, quotes around fields only."""
        if len(self.parts) == 1:
            return True
        texts = [decode_line(line, Tally(), self.layout) for _, line in self.parts]
        try:
            list(csv.reader(texts, strict=True, **self.dialect.options))
        except csv.Error:
            return False
        return len(self.values) == len(self.dialect.columns)

    def read_joined(self, header: bool) -> Iterator[Item]:
        """Yield records. A line end within an unquoted text, or a quote that never ends, makes more
        than one row of a record: those that go on with the text before them are one reject with it.
        """
        ends_with_text = self.dialect.columns[-1:] == self.layout.text_columns
        numbered = list_numbered(self.layout)
        held: Item | None = None
        raw = b""  # of the record that is held
        for item in self.read(header):
            is_reject = isinstance(item, Reject)
            is_rest = isinstance(item, Reject) and item.reason == FEWER and b'"' not in item.raw
            if held and not is_rest and len(self.parts) == 1:
                is_half = isinstance(held, Reject) and held.reason != MORE
                is_rest = goes_on(self.values, numbered, is_half)
            if held and is_rest:
                first = held if isinstance(held, Reject) else make_reject(held[0], FEWER, raw)
                rest = self.reject(FEWER)
                whole = first.raw if first.size > len(first.raw) else first.raw + b"\n" + rest.raw
                held = make_reject(*first[:2], whole, first.size + 1 + rest.size)
                continue
            if held:
                yield held
            held = item
            if is_reject:
                may_go_on = item[1] in (BROKEN, FEWER, MORE)
            elif may_go_on := ends_with_text:
                raw = b"\n".join(line for _, line in self.parts)
                may_go_on = not raw.rstrip().endswith(b'"')
            if not may_go_on:
                yield item
                held = None
        if held:
            yield held


def list_numbered(layout: Layout) -> list[int]:
    """Return the places of the columns before the text whose values have digits."""
    columns, [text, *_] = layout.found.columns, layout.text_columns
    before = columns[: columns.index(text)] if text in columns else ()
    return [place for place, name in enumerate(before) if name in layout.found.numbered]


def goes_on(values: list[str], numbered: list[int], is_half: bool) -> bool:
    """Return whether a row is the rest of the text of the one before it: it has no digits where
    others have some. If that one is more than half a record, a space must follow its first
    delimiter too, as in a sentence.
    """
    if not is_half and not (len(values) > 1 and values[1].startswith(" ")):
        return False
    given = [values[place] for place in numbered if place < len(values)]
    given = [value for value in given if fold(value) not in {"", *MISSING}]
    return bool(given) and not any(map(DIGIT.search, given))


def decode_line(line: bytes, tally: Tally, layout: Layout) -> str:
    return end_line(decode_text(line, tally, layout.encoding).lstrip("\ufeff"))


def end_line(line: str) -> str:
    """Return a line for csv.reader, which takes no CR within one."""
    return line.rstrip("\r").replace("\r", " ") + "\n"


def read_text(text: str, dialect: Dialect, **options: Any) -> Any:
    """Return a csv.reader of a text."""
    return csv.reader(map(end_line, text.split("\n")), **dialect.options, **options)


def is_header(values: list[str], columns: list[str]) -> bool:
    """Return whether a record repeats the names of the columns, which have one space for any."""
    if not (values and columns) or len(values[0]) >= MAX_HEADER:
        return False
    return values[0].split() == columns[0].split() and columns == [
        " ".join(value.split()) for value in values
    ]


def count_descriptions(records: list[list[str]]) -> int:
    """Return how many of the first records below a header describe its columns."""
    found, below = 0, records[MAX_DESCRIPTIONS:]
    for number, values in enumerate(records[:MAX_DESCRIPTIONS], 1):
        given = [value.strip().lower() for value in values if value]
        is_type = len(given) > 1 and (TYPES.issuperset(given) or "open-ended response" in given)
        is_id = bool(given) and all(value.startswith(IMPORT_ID) for value in given)
        tells_numbers = False
        for place, value in enumerate(values):
            others = [row[place] for row in below if place < len(row) and row[place]]
            is_told = len(value.split()) > 2 and len(others) >= MIN_NUMBERS
            tells_numbers |= is_told and all(map(NUMBER.fullmatch, others))
        if is_type or is_id or tells_numbers:
            found = number
    return found


def find_header(rows: list[list[str]]) -> int:
    """Return the place of the header: the first row, or a full one below a half empty one."""
    if not rows or 2 * sum(not value for value in rows[0]) < len(rows[0]) or len(rows[0]) < 3:
        return 0
    for place, row in enumerate(rows[1:MAX_GROUPS], 1):
        if len(row) == len(rows[0]) and all(row) and not any(map(NUMBER.fullmatch, row)):
            return place
    return 0


def take_header(text: str) -> str:
    """Return the first line, or the first ones where names in quotes have line ends."""
    lines, count = [f"{line}\n" for line in text.split("\n", MAX_HEADER_LINES)], 1
    for delimiter in DELIMITERS:
        reader = csv.reader(lines[:MAX_HEADER_LINES], strict=True, delimiter=delimiter)
        with suppress(csv.Error):
            next(reader)
            count = max(count, reader.line_num)
    return "".join(lines[:count])


def detect_dialect(head: bytes, layout: Layout, delimiter: str = "") -> Layout:
    """Choose the delimiter and quoting with which most records are read, and quotes fit best."""
    whole = head[: head.rfind(b"\n") + 1] or head
    text = decode_text(whole, Tally(), layout.encoding).lstrip("\ufeff")
    first = take_header(text)
    tried: list[tuple[tuple[bool, float, int], Dialect]] = []
    for one in [delimiter] if delimiter else [d for d in DELIMITERS if d in first] or ["\t"]:
        kinds = [Dialect(delimiter=one, has_escapes=escaped) for escaped in (False, True)]
        best = min((_try_dialect(kind, layout, whole, text) for kind in kinds), key=itemgetter(2))
        plain = _try_dialect(Dialect(delimiter=one, has_quotes=False), layout, whole, text)
        for dialect, unread, _ in (best, plain):
            is_tsv = one == "\t" and not dialect.has_quotes
            as_published = is_tsv and ("marketplace" in dialect.columns or b'"' not in whole)
            tried.append(((as_published, -unread, first.count(one)), dialect))
    chosen = max(tried, key=itemgetter(0))[1]
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(islice(filter(None, read_text(text, chosen)), FIRST_ROWS))
    if above := find_header(rows):
        lines = read_text(text, chosen)
        for _ in range(above):
            next(lines)
        end = [match.end() for match in islice(re.finditer(rb"\n", head), lines.line_num)][-1]
        return detect_dialect(head[end:], replace(layout, prefix=layout.prefix + head[:end]))
    rows, columns = rows[1:], chosen.columns
    if rows and all(len(row) == len(columns) + 1 and not row[-1] for row in rows):
        columns = (*columns, "")  # a delimiter ends each row
    by_column = zip(*(row for row in rows if len(row) == len(columns)), strict=True)
    numbered = tuple(
        name
        for name, values in zip(columns, by_column, strict=False)
        if (given := [*filter(None, values)])
        and sum(map(bool, map(DIGIT.search, given))) >= MIN_NUMBERED * len(given)
    )
    descriptions = count_descriptions(rows)
    found = replace(chosen, columns=columns, descriptions=descriptions, numbered=numbered)
    return replace(layout, found=found)


def _try_dialect(
    dialect: Dialect, layout: Layout, whole: bytes, text: str
) -> tuple[Dialect, float, int]:
    """Return a dialect with columns, the share that it does not read, and how much fits badly."""
    header = next(read_text(text, dialect))
    dialect = replace(dialect, columns=tuple(" ".join(name.split()) for name in header))
    limited = replace(layout, found=dialect, max_record_bytes=len(whole))
    items = list(RecordLines(io.BytesIO(whole), limited, Tally()).read(header=True))
    records, misplaced = read_text(text, dialect, strict=True), 0
    while True:
        try:
            next(records)
        except StopIteration:
            break
        except csv.Error:
            misplaced += 1
    unread = sum(isinstance(item, Reject) for item in items)
    return dialect, unread / max(len(items), 1), unread + misplaced


def find_record_end(stretch: bytes, least: int, layout: Layout) -> int:
    """Return the first end of a record at or after `least`, or -1, in bytes that begin with one."""
    dialect: Dialect = layout.found
    if not dialect.has_quotes:
        return find_line_end(stretch, least)
    clean, longer = compile_clean_records(replace(dialect, columns=(), descriptions=0, numbered=()))
    at = 0
    while 0 <= at < least:
        at = clean.match(stretch, at, least).end()  # type: ignore[union-attr]
        if at < least:
            record = longer.match(stretch, at)
            is_certain = record and len(record[0]) <= layout.max_record_bytes
            if record and is_certain and record[0].count(b"\n") > 1:
                lines = [decode_line(one, Tally(), layout) for one in record[0].split(b"\n")[:-1]]
                [values] = csv.reader(lines, **dialect.options)
                is_certain = len(values) == len(dialect.columns)
            at = record.end() if record and is_certain else _find_first_end(stretch, at, layout)
    return at


@cache
def compile_clean_records(dialect: Dialect) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return a pattern of records of one line with quotes in order, and of one with line ends."""
    bar, escape = re.escape(dialect.delimiter.encode()), rb"\\" if dialect.has_escapes else b""

    def build(end: bytes) -> bytes:
        field = rb'(?:"[^"%b%b]*+(?:""[^"%b%b]*+)*+"|[^"\n%b%b][^\n%b%b]*+)?+'
        field %= escape, end, escape, end, bar, escape, bar, escape
        return rb"(?!\xef\xbb\xbf)%b(?:%b%b)*+\r?+\n" % (field, bar, field)

    return re.compile(rb"(?:%b)*+" % build(rb"\n")), re.compile(build(b""))


def _find_first_end(stretch: bytes, start: int, layout: Layout) -> int:
    """Return where the record that begins at `start` ends, or -1 if that takes more bytes."""
    window, stop = SMALL_WINDOW_BYTES, 0
    while stop < len(stretch):
        stop = min(start + window, len(stretch))
        whole_lines = stretch[start : stretch.rfind(b"\n", start, stop) + 1]
        lines = RecordLines(io.BytesIO(whole_lines), layout, Tally())
        if next(lines.read(header=False), None) and not lines.has_met_end:
            return start + lines.position
        window *= 8
    return -1


class Delimited(Format):
    """Recognized last: many texts have commas in their first line."""

    name, endings = "delimited", ("csv", "tsv", "txt")
    copy_ending = "csv"

    def recognize(self, start: bytes) -> bool:
        """Return whether the first line has a delimiter, or is the name of a column of texts."""
        first = take_header(start.decode(errors="replace"))
        has_delimiter = any(delimiter in first for delimiter in DELIMITERS)
        return has_delimiter or bool(fields.find_column("text", {first.strip(' "\r')}))

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        is_of_old_mac = b"\n" not in head and b"\r" in head.strip()
        require(not is_of_old_mac, f"{shown}: its lines end with CR alone; convert them to LF")
        separator = SEPARATOR.match(head)  # for Excel
        above = separator or BLANK_LINES.match(head)
        prefix = above[0] if above else b""
        delimiter = separator[1].decode() if separator else ""
        return detect_dialect(head[len(prefix) :], replace(layout, prefix=prefix), delimiter)

    def list_columns(self, layout: Layout, records: list[dict[str, Any]]) -> list[str]:
        return [*layout.found.columns]

    def read(self, stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
        """A quote that never ends costs only its own record: the lines after it are read again."""
        return RecordLines(stream, layout, tally).read_joined(header)

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        """A line that may go on with the record before it stays with that one."""
        dialect: Dialect = layout.found
        delimiter, count = dialect.delimiter.encode(), len(dialect.columns) - 1
        at, numbered = find_record_end(stretch, least, layout), list_numbered(layout)
        while at >= 0:
            line, end, _ = stretch[at:].partition(b"\n")
            if not end:
                return -1
            values = next(csv.reader([decode_line(line, Tally(), layout)], **dialect.options), [])
            is_short = b'"' not in line and line.count(delimiter) < count
            if not is_short and not goes_on(values, numbered, is_half=True):
                return at
            step = find_record_end(stretch[at:], 1, layout)
            at = at + step if step >= 0 else -1
        return -1

    def is_stateless(self, layout: Layout) -> bool:
        return not layout.found.has_quotes
