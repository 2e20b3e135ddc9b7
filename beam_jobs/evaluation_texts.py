"""The texts of an evaluation file, whatever its form: every field in it that is not a label, number or name.

Nothing is assumed about which column is the text, so that no part of a task leaks: questions, contexts and answers of
question answering as well as the sentences of GLUE. Fields of fewer than three words are skipped: labels, names and
"Love it!", which is nobody's in particular (model/evaluation/leaks.py says so in the report).
"""

import csv
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from beam_jobs import storage
from beam_jobs.command import UserMistake
from beam_jobs.compression import Compression, compression_of, open_plain, zip_members
from beam_jobs.formats import parquet_records
from beam_jobs.formats.lines import Rejected, Tally, decode, line_blocks

LEAST_WORDS = 3
HEAD = 100_000
"""Characters the form is told by."""
LONGEST_FIELD = 1 << 26
"""Characters of a table's field; an unclosed quote would make one of the whole file."""
Lines = Callable[[], Iterator[str]]
"""The lines of a file without their ends, from its beginning each time."""
TAGGED_WORD = re.compile(r"O|[BIES]-\S+")
NO_ANSWER = "ANSWERNOTFOUND"
"""Stands at the end of every review of SubjQA; it is none of its words."""
TAGGED = re.compile(r"<(?:review_text|title)>(.*?)</(?:review_text|title)>", re.DOTALL)


def named(path: str) -> str:
    """What results call an evaluation file: its name and the first 16 hex digits of its SHA-256."""
    digest = hashlib.sha256()
    with storage.open_bytes(path) as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return f"{os.path.basename(path)} {digest.hexdigest()[:16]}"


def texts_of(path: str) -> Iterator[str]:
    """Files of lines are streamed; a JSON document of many lines is held as a whole."""
    if path.endswith(".parquet"):
        yield from _of_parquet(path)
        return
    with storage.open_bytes(path) as file:
        compression = compression_of(file.read(16))
    for member in zip_members(path) if compression == "zip" else [""]:
        lines = partial(_lines, path, compression, member)
        yield from _long_enough(_of_lines(lines, path))


def _long_enough(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        text = text.removesuffix(NO_ANSWER).rstrip() if text.endswith(NO_ANSWER) else text
        if text.count(" ") + 1 >= LEAST_WORDS:
            yield text


def _lines(path: str, compression: Compression, member: str) -> Iterator[str]:
    tally = Tally()
    with open_plain(path, compression, member) as stream:
        for block in line_blocks(stream, sys.maxsize, tally):
            assert not isinstance(block, Rejected)
            yield from (decode(line, tally, "utf-8-sig") for line in block[1])
        if stream.damage:
            raise UserMistake(f"--withhold {path}: {stream.damage}; fetch it again")


def _of_lines(lines: Lines, path: str) -> Iterator[str]:
    head = _head(lines)
    start = head.lstrip()[:1]
    if start in "{[" and start:
        yield from _of_json(lines)
    elif "<review_text>" in head:
        yield from _of_tagged(lines)
    elif head.startswith("__label__"):
        for line in lines():
            _, _, text = line.partition(" ")
            title, _, rest = text.partition(": ")
            yield from (text, rest or title)
    elif all(map(_is_tagged_word, filter(str.strip, head.split("\n")))):
        yield from _of_tagged_words(lines)
    else:
        yield from _of_table(lines, path)


def _head(lines: Lines) -> str:
    held, size = [], 0
    for line in lines():
        held.append(line)
        size += len(line)
        if size > HEAD:
            break
    return "\n".join(held)


def _of_json(lines: Lines) -> Iterator[str]:
    """An object a line, with or without the brackets of an array around them all; else one document."""
    first = next((line for line in lines() if line.strip(" ,[]\t\r")), "")
    if _parsed(first) is None:
        content = "\n".join(lines())
        with suppress(ValueError):
            yield from _strings(json.loads(content))
            return
    for line in lines():
        value = _parsed(line)
        if value is not None:
            yield from _strings(value)
        elif line.strip(" ,[]\t\r"):
            yield line


def _parsed(line: str) -> Any:
    """None where a line is no JSON."""
    for text in (line, line.strip(" ,[]\t\r")):
        with suppress(ValueError):
            return json.loads(text)
    return None


def _of_tagged(lines: Lines) -> Iterator[str]:
    held: list[str] = []
    for line in lines():
        held.append(line)
        if "</review_text>" in line or "</title>" in line:
            yield from (match[1].strip() for match in TAGGED.finditer("\n".join(held)))
            held = []


def _is_tagged_word(line: str) -> bool:
    """As CoNLL writes them: the word first, its tag last."""
    cells = line.split()
    return cells[0] == "-DOCSTART-" or (len(cells) > 1 and bool(TAGGED_WORD.fullmatch(cells[-1])))


def _of_tagged_words(lines: Lines) -> Iterator[str]:
    """A sentence for every block of lines."""
    for filled, block in itertools.groupby(map(str.split, lines()), key=bool):
        if filled:
            yield " ".join(cells[0] for cells in block if cells[0] != "-DOCSTART-")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _of_table(lines: Lines, path: str) -> Iterator[str]:
    """Fields of a TSV or CSV, and whole lines of anything else; quotes are tried both ways."""
    first = next(lines(), "")
    delimiter = max("\t,", key=first.count)
    if first.count(delimiter) == 0:
        yield from (part for line in lines() for part in line.splitlines())
        return
    readings: list[dict[str, Any]] = [{"quoting": csv.QUOTE_NONE}] if delimiter == "\t" else []
    for reading in [*readings, {"quotechar": '"'}]:
        rows = csv.reader((line.replace("\0", "") + "\n" for line in lines()), delimiter=delimiter, **reading)
        limit = csv.field_size_limit(LONGEST_FIELD)
        try:
            for fields in rows:
                yield from fields
        except csv.Error as error:
            if not readings:
                raise UserMistake(f"--withhold {path}, line {rows.line_num}: {error}; is a quote not closed?") from None
        finally:
            csv.field_size_limit(limit)


def _of_parquet(path: str) -> Iterator[str]:
    import pyarrow.parquet as pq

    with storage.open_bytes(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(parquet_records.BATCH_ROWS):
            yield from _long_enough(_strings(batch.to_pylist()))
