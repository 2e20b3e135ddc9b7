"""Reads the texts of an evaluation file of any form: every field but labels, numbers and names.

Nothing is assumed about which column is the text, so that no part of a task leaks. Texts of fewer
than three words are skipped: labels, names and "Love it!", which is nobody's in particular.
"""

import csv
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from amazon_electra.beam_jobs.core import parquet, storage
from amazon_electra.beam_jobs.core.errors import UserError, name_setting
from amazon_electra.beam_jobs.core.limits import DEFAULT_LIMITS, Limits
from amazon_electra.beam_jobs.core.nesting import list_strings, load_json
from amazon_electra.beam_jobs.reading.compression import (
    Compression,
    PlainStream,
    detect_compression,
    list_zip_members,
)
from amazon_electra.beam_jobs.reading.lines import Reject, Tally, decode_text, read_lines
from amazon_electra.beam_jobs.text.cleaning import clean_text, repair_mojibake
from amazon_electra.beam_jobs.text.personal_data import mask_personal_data
from amazon_electra.beam_jobs.text.word_runs import space_words

MIN_WORDS = 3
HEAD_LINES = 100  # of a file, by which its form is recognized
MAX_FIELD_CHARACTERS = 1 << 26  # more: a quote that is not closed
Lines = Callable[[], Iterator[str]]  # of a file, from its beginning each time
TAGGED_WORD = re.compile(r"O|[BIES]-\S+")


def list_forms(raw: str, mends: bool = False) -> set[str]:
    """Return a text as a job may have it: clean, masked or not, mojibake mended if `mends`."""
    texts = {clean_text(text) for text in ({raw, repair_mojibake(raw)} if mends else {raw})}
    return {form for text in texts for form in (text, mask_personal_data(text)[0])} - {""}


def identify_file(path: str) -> str:
    """Return how results name an evaluation file: its name, 16 hex digits of its SHA-256."""
    return f"{os.path.basename(path)} {storage.hash_file(path)[:16]}"


def read_evaluation_texts(path: str, limits: Limits = DEFAULT_LIMITS) -> Iterator[str]:
    """Yield the texts of an evaluation file; a JSON document is held as a whole."""
    if path.endswith(".parquet"):
        with storage.open_bytes(path) as file:
            for row in parquet.read_rows(file, name_setting("withhold", path), limits):
                yield from _drop_short_texts(list_strings(row))
        return
    with storage.open_bytes(path) as file:
        compression = detect_compression(file.read(16))
    for member in list_zip_members(path) if compression == "zip" else [""]:
        lines = partial(_read_lines, path, compression, member, limits)
        yield from _drop_short_texts(_extract_texts(lines, path))


def _drop_short_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts of MIN_WORDS words, or of as many characters that are words."""
    for text in texts:
        spaced = text if text.isascii() else space_words(text)
        if len(spaced.split(maxsplit=MIN_WORDS)) >= MIN_WORDS:
            yield text


def _read_lines(path: str, compression: Compression, member: str, limits: Limits) -> Iterator[str]:
    tally = Tally()
    with PlainStream(path, compression, member, limits.max_expansion) as stream:
        for line in read_lines(stream, sys.maxsize, tally):
            assert not isinstance(line, Reject)
            yield decode_text(line[1], tally, "utf-8-sig")


def _extract_texts(lines: Lines, path: str) -> Iterator[str]:
    head = list(itertools.islice(lines(), HEAD_LINES))
    filled = [line for line in head if line.strip()]
    if filled and filled[0].lstrip()[0] in "{[":
        yield from _read_json_texts(lines)
    elif head and head[0].startswith("__label__"):
        for line in lines():
            _, _, text = line.partition(" ")
            title, _, rest = text.partition(": ")
            yield from (text, rest or title)
    elif all(map(_is_tagged_word, filled)):  # CoNLL's: a sentence for every block of lines
        for is_filled, block in itertools.groupby(map(str.split, lines()), key=bool):
            if is_filled:
                yield " ".join(cells[0] for cells in block if cells[0] != "-DOCSTART-")
    else:
        yield from _read_table_fields(lines, path)


def _read_json_texts(lines: Lines) -> Iterator[str]:
    """Yield the strings of an object a line, in an array or not, or else of one document."""
    first = next((line for line in lines() if line.strip(" ,[]\t\r")), "")
    if _parse_json(first) is None:
        content = "\n".join(lines())
        with suppress(ValueError):
            yield from list_strings(load_json(content))
            return
    for line in lines():
        value = _parse_json(line)
        if value is not None:
            yield from list_strings(value)
        elif line.strip(" ,[]\t\r"):
            yield line


def _parse_json(line: str) -> Any:
    """Return the value of a line, None if it is no JSON."""
    for text in (line, line.strip(" ,[]\t\r")):
        with suppress(ValueError):
            return load_json(text)
    return None


def _is_tagged_word(line: str) -> bool:
    """Return whether a line is one of CoNLL's: the word first, its tag last."""
    cells = line.split()
    return cells[0] == "-DOCSTART-" or (len(cells) > 1 and bool(TAGGED_WORD.fullmatch(cells[-1])))


def _read_table_fields(lines: Lines, path: str) -> Iterator[str]:
    """Yield lines and, of what may be a TSV or CSV, fields, with quotes tried both ways."""
    first = next(lines(), "")
    delimiter = max("\t,", key=first.count)
    yield from (part for line in lines() for part in line.splitlines())
    if first.count(delimiter) == 0:
        return
    readings: list[dict[str, Any]] = [{"quoting": csv.QUOTE_NONE}] if delimiter == "\t" else []
    for reading in [*readings, {"quotechar": '"'}]:
        rows = csv.reader(
            (line.replace("\0", "") + "\n" for line in lines()), delimiter=delimiter, **reading
        )
        limit = csv.field_size_limit(MAX_FIELD_CHARACTERS)
        try:
            for fields in rows:
                yield from fields
        except csv.Error as error:
            if not readings:
                raise UserError(
                    f"line {rows.line_num}: {error}; is a quote not closed?", "withhold", path
                ) from None
        finally:
            csv.field_size_limit(limit)
