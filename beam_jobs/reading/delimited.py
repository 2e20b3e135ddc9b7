"""Reads CSV and TSV: Customer Reviews, Kaggle's files, any with a header and a text column."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import compress, islice
from typing import Any, NamedTuple

from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.format import Format
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import (
    Item,
    Reject,
    Stream,
    Tally,
    decode_text,
    find_line_end,
    join_rejects,
    make_reject,
    read_lines,
)

DELIMITERS = "\t,;|"
MAX_HEADER, MAX_HEADER_LINES = 200, 10  # characters of the first name, and lines of all names
TOO_LONG, BROKEN = "record too long", "broken CSV"
FEWER, MORE = "fewer columns", "more columns"
csv.field_size_limit(2**31 - 1)
"""Of the whole process; `RecordLines` keeps to the layout's own limit."""
SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?sep=([\t,;|])\r?\n", re.IGNORECASE)
BLANK_LINES = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*\r?\n)+")
FIRST_ROWS = 50  # records that show how a file's rows end, and what the first of them are
SMALL_WINDOW_BYTES = 1 << 12
DESCRIPTION = "description of columns"  # why a row is no review
MAX_DESCRIPTIONS = 3
MIN_NUMBERS = 5  # in a column, from which on it is one of numbers
MAX_GROUPS = 4  # rows of groups of columns, or of a title, above the header
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
IMPORT_ID = '{"ImportId"'
"""What the third row of a Qualtrics export has in each column; the second has the questions."""
KINDS = {
    *("string", "str", "text", "varchar", "char", "int", "integer", "bigint", "smallint", "number"),
    *("numeric", "decimal", "float", "double", "real", "bool", "boolean", "date", "datetime"),
    *(
        "required",
        "optional",
        "mandatory",
        "time",
        "timestamp",
        "object",
        "int64",
        "float64",
        "long",
        "category",
        "categorical",
        "uuid",
    ),
}
"""Names of types, which some exports write into a second header."""


def _read_records(lines: "RecordLines", header: bool) -> Iterator[Item]:
    """Yield (line where the record begins, record). `header`: the first line names the columns."""
    layout, columns = lines.layout, list(lines.layout.columns)
    repeated = [
        name
        for field, name in layout.mapping
        if field.startswith(fields.LABEL) and columns.count(name) > 1
    ]
    described = 0  # records that are still to come and describe the columns
    while not lines.ended:
        records = csv.reader(lines, **make_dialect(layout))
        broken = ""
        while not broken:
            lines.begin_record()
            values = None
            try:
                values = next(records, None)
            except csv.Error as error:
                broken = TOO_LONG if str(error) == TOO_LONG else BROKEN
            yield from lines.rejects
            lines.rejects.clear()
            if broken:
                continue
            if values is None:
                break
            if not header and (lines.ended or not is_whole(lines, values)):
                broken = BROKEN  # a quote that never ends, or ends within a field
            elif header:
                header, described = False, layout.descriptions
            elif is_header(values, columns):  # of files put together
                lines.tally.notes["repeated_headers"] += 1
                described = layout.descriptions
            elif described and len(values) == len(columns):
                described -= 1
                yield make_reject(lines.first, DESCRIPTION, lines.join_raw())
            elif len(values) == len(columns):
                record: dict[str, Any] = dict(zip(columns, values, strict=True))
                for name in repeated:  # as Jira writes a list
                    record[name] = list(compress(values, map(name.__eq__, columns)))
                yield lines.first, record
            elif values and (len(values) > 1 or values[0].strip()):
                reason = FEWER if len(values) < len(columns) else MORE
                yield make_reject(lines.first, reason, lines.join_raw())
        if broken:  # the reader may be inside a quoted field: go on with the next line
            lines.give_back()
            yield make_reject(lines.first, broken, lines.join_raw())


def _join_halves(items: Iterator[Item], lines: "RecordLines") -> Iterator[Item]:
    """Yield records; the lines of one that has a line end within a text without quotes are one
    reject: a line with fewer columns goes on with the last column of the record before it, if that
    is the text, or has the columns that another one lacks.
    """
    columns, delimiter = lines.layout.columns, lines.layout.delimiter.encode()
    ends_with_text = columns[-1:] == (dict(lines.layout.mapping).get("text"),)
    held: Item | None = None
    raw, missing = b"", 0  # of what is held: bytes, and delimiters that it lacks
    for item in items:
        if isinstance(item, Reject) and item.reason == FEWER and b'"' not in item.raw:
            count = item.raw.count(delimiter)
            if held and (not missing or count in (0, missing)):
                first = held if isinstance(held, Reject) else make_reject(held[0], FEWER, raw)
                held, missing = join_rejects(first, item), missing and missing - count
                continue
            if held:
                yield held
            held, missing = item, len(columns) - 1 - count
            continue
        if held:
            yield held
        held = None
        if ends_with_text and not isinstance(item, Reject):
            raw = lines.join_raw()
            if not raw.rstrip().endswith(b'"'):
                held, missing = item, 0
                continue
        yield item
    if held:
        yield held


def is_whole(lines: "RecordLines", values: list[str]) -> bool:
    """Return whether the lines of a record are one record: it has as many columns as the others,
    and each of its quotes begins or ends a field.
    """
    if len(lines.parts) == 1:
        return True
    texts = [decode_line(line, Tally(), lines.layout) for _, line in lines.parts]
    try:
        list(csv.reader(texts, strict=True, **make_dialect(lines.layout)))
    except csv.Error:
        return False
    return len(values) == len(lines.layout.columns)


def is_header(values: list[str], columns: list[str]) -> bool:
    """Return whether a record repeats the names of the columns, which have one space for any."""
    if not (values and columns) or len(values[0]) >= MAX_HEADER:
        return False
    return values[0].split() == columns[0].split() and columns == [
        " ".join(value.split()) for value in values
    ]


def count_descriptions(records: list[list[str]]) -> int:
    """Return how many of the first records below a header describe its columns: those up to import
    ids of Qualtrics, names of types, SurveyMonkey's second header, or a sentence in a column that
    has only numbers below.
    """
    found = 0
    for number, values in enumerate(records[:MAX_DESCRIPTIONS], 1):
        given = [value.strip().lower() for value in values if value]
        is_kind = len(given) > 1 and (KINDS.issuperset(given) or "open-ended response" in given)
        is_id = bool(given) and all(value.startswith(IMPORT_ID.lower()) for value in given)
        if is_kind or is_id or _tells_numbers(values, records[MAX_DESCRIPTIONS:]):
            found = number
    return found


def _tells_numbers(values: list[str], below: list[list[str]]) -> bool:
    """Return whether a value is a sentence where all those below are numbers."""
    for place, value in enumerate(values):
        others = [row[place] for row in below if place < len(row) and row[place]]
        is_told = len(value.split()) > 2 and len(others) >= MIN_NUMBERS
        if is_told and all(map(NUMBER.fullmatch, others)):
            return True
    return False


def find_header(rows: list[list[str]]) -> int:
    """Return the place of the row with the names of columns: the first one, or below a row of
    groups, or a title, that is half empty, the next one that is full and has no numbers.
    """
    if not rows or 2 * sum(not value for value in rows[0]) < len(rows[0]) or len(rows[0]) < 3:
        return 0
    for place, row in enumerate(rows[1:MAX_GROUPS], 1):
        if len(row) == len(rows[0]) and all(row) and not any(map(NUMBER.fullmatch, row)):
            return place
    return 0


def make_dialect(layout: Layout) -> dict[str, Any]:
    """Return what csv.reader has to know of a file."""
    return {
        "delimiter": layout.delimiter,
        "quoting": csv.QUOTE_MINIMAL if layout.has_quotes else csv.QUOTE_NONE,
        "escapechar": "\\" if layout.has_escapes else None,
        "skipinitialspace": layout.has_spaces,
    }


class RecordLines:
    """Gives lines to the csv module and keeps those of the record under way."""

    def __init__(self, stream: Stream, layout: Layout, tally: Tally) -> None:
        self.layout, self.tally = layout, tally
        self._lines = read_lines(stream, layout.max_record_bytes, tally)
        self._again: list[tuple[int, bytes]] = []  # the next one last
        self._size = 0
        self.rejects: list[Reject] = []  # lines that are too long
        self.parts: list[tuple[int, bytes]] = []
        self.first = 1
        self.ended = self.has_met_end = False
        self.begun = self._position = 0  # bytes before the record, and before the next line

    def begin_record(self) -> None:
        self.parts, self._size, self.begun = [], 0, self._position

    def join_raw(self) -> bytes:
        return b"\n".join(line for _, line in self.parts)

    def give_back(self) -> None:
        """End the record with its first line; the others are read again."""
        self._position -= sum(len(line) + 1 for _, line in self.parts[1:])
        self._again += self.parts[:0:-1]
        self.ended = self.ended and len(self.parts) < 2
        self.parts = self.parts[:1]

    def __iter__(self) -> "RecordLines":
        return self

    def __next__(self) -> str:
        try:
            part = self._again.pop() if self._again else next(self._lines)
            while isinstance(part, Reject):
                self._position += part.size + 1
                self.rejects.append(part)
                part = next(self._lines)
        except StopIteration:
            self.ended = self.has_met_end = True
            raise
        if not self.parts:
            self.first = part[0]
        self.parts.append(part)
        self._size += len(part[1])
        self._position += len(part[1]) + 1
        if self._size > self.layout.max_record_bytes:
            raise csv.Error(TOO_LONG)
        return decode_line(part[1], self.tally, self.layout)


def decode_line(line: bytes, tally: Tally, layout: Layout) -> str:
    return end_line(decode_text(line, tally, layout.encoding).lstrip("\ufeff"))


def end_line(line: str) -> str:
    """Return a line for csv.reader, which takes no CR within one."""
    return line.rstrip("\r").replace("\r", " ") + "\n"


def take_header(text: str) -> str:
    """Return the first line, or the first ones where names in quotes have line ends."""
    lines, count = [f"{line}\n" for line in text.split("\n", MAX_HEADER_LINES)], 1
    for delimiter in DELIMITERS:
        reader = csv.reader(lines[:MAX_HEADER_LINES], strict=True, delimiter=delimiter)
        with suppress(csv.Error):
            next(reader)
            count = max(count, reader.line_num)
    return "".join(lines[:count])


def detect_delimited_layout(head: bytes, found: Layout) -> Layout:
    """Choose the delimiter and quoting with which most records have as many fields as the header;
    quotes within quotes are doubled or follow a backslash, whichever puts fewer of them in a place
    where none may be.

    In a tab-separated file without quotes at its beginning, later quotes have no meaning.
    """
    delimiter = ""
    if separator := SEPARATOR.match(head):  # for Excel
        found, delimiter = replace(found, prefix=separator[0]), separator[1].decode()
    elif blank := BLANK_LINES.match(head):
        found = replace(found, prefix=blank[0])
    return _detect_layout(head[len(found.prefix) :], found, delimiter)


def _detect_layout(head: bytes, found: Layout, delimiter: str = "") -> Layout:
    whole = head[: head.rfind(b"\n") + 1] or head
    text = decode_text(whole, Tally(), found.encoding).lstrip("\ufeff")
    first = take_header(text)
    delimiters = [delimiter] if delimiter else [d for d in DELIMITERS if d in first] or ["\t"]
    best: list[tuple[tuple[bool, float, int], Layout]] = []
    for one in delimiters:
        quoted = []
        for spaced in (False, True) if f'{one} "' in text else (False,):
            for escaped in (False, True):
                candidate = replace(found, delimiter=one, has_escapes=escaped, has_spaces=spaced)
                quoted.append(_try_layout(candidate, whole, text))
        unquoted = _try_layout(replace(found, delimiter=one, has_quotes=False), whole, text)
        for tried in (min(quoted, key=lambda tried: tried.unread + tried.misplaced), unquoted):
            layout = tried.layout
            as_published = (
                one == "\t"
                and not layout.has_quotes
                and ("marketplace" in layout.columns or b'"' not in whole)
            )
            best.append(((as_published, -tried.unread / tried.records, first.count(one)), layout))
    chosen = max(best, key=lambda tried: tried[0])[1]
    rows = read_rows(text, chosen)
    if above := find_header(rows):
        lines = csv.reader(map(end_line, text.split("\n")), **make_dialect(chosen))
        for _ in range(above):
            next(lines)
        ends = [match.end() for match in islice(re.finditer(rb"\n", head), lines.line_num)]
        return _detect_layout(
            head[ends[-1] :], replace(found, prefix=found.prefix + head[: ends[-1]])
        )
    rows = rows[1:]
    if rows and all(len(r) == len(chosen.columns) + 1 and not r[-1] for r in rows):
        chosen = replace(chosen, columns=(*chosen.columns, ""))  # a delimiter ends each row
    return replace(chosen, descriptions=count_descriptions(rows))


def read_rows(text: str, layout: Layout) -> list[list[str]]:
    """Return the first records of a text, the header among them."""
    records = csv.reader(map(end_line, text.split("\n")), **make_dialect(layout))
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(islice(filter(None, records), FIRST_ROWS))
    return rows


class Tried(NamedTuple):
    """How well a layout fits the beginning of a file."""

    layout: Layout
    records: int
    unread: int
    misplaced: int  # quotes


def _try_layout(candidate: Layout, whole: bytes, text: str) -> Tried:
    """Read the beginning of a file, `text`, by a layout that lacks the names of its columns."""
    header = next(csv.reader(map(end_line, text.split("\n")), **make_dialect(candidate)))
    columns = tuple(" ".join(name.split()) for name in header)
    candidate = replace(candidate, columns=columns)
    limited = replace(candidate, max_record_bytes=len(whole))
    records = list(_read_records(RecordLines(io.BytesIO(whole), limited, Tally()), header=True))
    unread = sum(isinstance(record, Reject) for record in records)
    return Tried(candidate, max(len(records), 1), unread, count_misplaced_quotes(text, candidate))


def count_misplaced_quotes(text: str, layout: Layout) -> int:
    """Return how many records have a quote that neither ends a field nor stands for itself."""
    records = csv.reader(map(end_line, text.split("\n")), strict=True, **make_dialect(layout))
    misplaced = 0
    while True:
        try:
            misplaced += any(value.startswith(' "') for value in next(records))
        except StopIteration:
            return misplaced
        except csv.Error:
            misplaced += 1


def find_record_end(stretch: bytes, least: int, layout: Layout) -> int:
    """Return the first end of a record at or after `least`, or -1, in bytes that begin with one.

    A quote opens at the beginning of a field only. Records of one line whose quotes are in order
    are skipped at once (50 to 100 MB a CPU second), of the others the reader finds the end.
    """
    if not layout.has_quotes:
        return find_line_end(stretch, least, layout)
    dialect = layout.delimiter, layout.has_escapes, layout.has_spaces
    clean, longer = (compile_clean_records(*dialect, end) for end in (rb"\n", b""))
    at = 0
    while 0 <= at < least:
        at = clean.match(stretch, at, least).end()  # type: ignore[union-attr]
        if at < least:
            record = longer.match(stretch, at)
            at = (
                record.end()
                if record and _is_certain(record[0], layout)
                else _find_end_of_first(stretch, at, layout)
            )
    return at


@cache
def compile_clean_records(
    delimiter: str, has_escapes: bool, has_spaces: bool, end: bytes
) -> re.Pattern[bytes]:
    """Return a pattern of a record whose quotes are in order, or of any number of records of one
    line, if `end` is that of a line.
    """
    bar, escape = re.escape(delimiter.encode()), rb"\\" if has_escapes else b""
    field = (
        rb" *+" if has_spaces else b""
    ) + rb'(?:"[^"%b%b]*+(?:""[^"%b%b]*+)*+"|[^"\n%b%b][^\n%b%b]*+)?+'
    field %= escape, end, escape, end, bar, escape, bar, escape
    record = rb"(?!\xef\xbb\xbf)%b(?:%b%b)*+\r?+\n" % (field, bar, field)
    return re.compile(rb"(?:%b)*+" % record if end else record)


def _is_certain(record: bytes, layout: Layout) -> bool:
    """Return whether the reader takes what looks like a record for one."""
    if len(record) > layout.max_record_bytes:
        return False
    if record.count(b"\n") == 1:
        return True
    lines = [decode_line(line, Tally(), layout) for line in record.split(b"\n")[:-1]]
    [values] = csv.reader(lines, **make_dialect(layout))
    return len(values) == len(layout.columns)


def _find_end_of_first(stretch: bytes, start: int, layout: Layout) -> int:
    """Return where the record that begins at `start` ends, or -1 if that takes more bytes."""
    window, stop = SMALL_WINDOW_BYTES, 0
    while stop < len(stretch):
        stop = min(start + window, len(stretch))
        whole_lines = stretch[start : stretch.rfind(b"\n", start, stop) + 1]
        lines = RecordLines(io.BytesIO(whole_lines), layout, Tally())
        for _ in _read_records(lines, header=False):
            if lines.has_met_end:  # what follows may decide otherwise
                break
            if lines.begun:
                return start + lines.begun
        window *= 8
    return -1


class Delimited(Format):
    """Recognized last: many texts have commas in their first line."""

    name, endings = "delimited", ("csv", "tsv", "txt")
    has_only_strings = True

    def recognize(self, start: bytes) -> bool:
        """Return whether the first line has a delimiter, or is the name of a column of texts."""
        first = take_header(start.decode(errors="replace"))
        has_delimiter = any(delimiter in first for delimiter in DELIMITERS)
        return has_delimiter or bool(fields.find_column("text", {first.strip(' "\r')}))

    def inspect(self, head: bytes, layout: Layout) -> Layout:
        return detect_delimited_layout(head, layout)

    def read(
        self, stream: Stream, layout: Layout, tally: Tally, header: bool = True
    ) -> Iterator[Item]:
        """A quote that never ends costs only its own record: the lines after it are read again."""
        lines = RecordLines(stream, layout, tally)
        return _join_halves(_read_records(lines, header), lines)

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        """A line that may go on with the record before it stays with that one."""
        at = find_record_end(stretch, least, layout)
        while at >= 0:
            line, end, _ = stretch[at:].partition(b"\n")
            if not end:
                return -1
            if b'"' in line or line.count(layout.delimiter.encode()) >= len(layout.columns) - 1:
                return at
            step = find_record_end(stretch[at:], 1, layout)
            at = at + step if step >= 0 else -1
        return -1

    def is_stateless(self, layout: Layout) -> bool:
        return not layout.has_quotes
