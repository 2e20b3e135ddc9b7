"""The texts of an evaluation file, whatever its form: every field in it that is not a label, number or name.

Nothing is assumed about which column is the text, so that no part of a task leaks: questions, contexts and answers of
question answering as well as the sentences of GLUE. Fields of fewer than three words are skipped.
"""

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from beam_jobs import storage
from beam_jobs.command import UserMistake
from beam_jobs.compression import compression_of, open_plain, zip_members
from beam_jobs.formats import parquet_records
from beam_jobs.formats.lines import Tally, decode

LEAST_WORDS = 3
TAGGED = re.compile(r"<(?:review_text|title)>(.*?)</(?:review_text|title)>", re.DOTALL)


def named(path: str) -> str:
    """What results call an evaluation file: its name and the first 16 hex digits of its SHA-256."""
    return f"{os.path.basename(path)} {hashlib.sha256(storage.read_bytes(path)).hexdigest()[:16]}"


def texts_of(path: str) -> Iterator[str]:
    if path.endswith(".parquet"):
        yield from _of_parquet(path)
        return
    with storage.open_bytes(path) as file:
        compression = compression_of(file.read(16))
    for member in zip_members(path) if compression == "zip" else [""]:
        with open_plain(path, compression, member) as stream:
            content = b"".join(iter(lambda: stream.read(1 << 20), b""))
            if stream.damage:
                raise UserMistake(f"--withhold {path}: {stream.damage}; fetch it again")
        yield from (t for t in _of_text(decode(content, Tally(), "utf-8-sig")) if t.count(" ") + 1 >= LEAST_WORDS)


def _of_text(content: str) -> Iterator[str]:
    start = content.lstrip()[:1]
    if start in "{[" and start:
        yield from _of_json(content)
    elif "<review_text>" in content[:100_000]:
        yield from (match[1].strip() for match in TAGGED.finditer(content))
    elif content.startswith("__label__"):
        for line in content.splitlines():
            _, _, text = line.partition(" ")
            title, _, rest = text.partition(": ")
            yield from (text, rest or title)
    else:
        yield from _of_table(content)


def _of_json(content: str) -> Iterator[str]:
    try:
        yield from _strings(json.loads(content))
    except ValueError:
        for line in content.splitlines():
            try:
                yield from _strings(json.loads(line.strip(" ,[]\t")))
            except ValueError:
                if line.strip(" ,[]\t"):
                    yield line


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _of_table(content: str) -> Iterator[str]:
    """Fields of a TSV or CSV, and whole lines of anything else; quotes are tried both ways."""
    first = content.split("\n", 1)[0]
    delimiter = max("\t,", key=first.count)
    if first.count(delimiter) == 0:
        yield from content.splitlines()
        return
    csv.field_size_limit(1 << 30)
    readings: list[dict[str, Any]] = [{"quoting": csv.QUOTE_NONE}] if delimiter == "\t" else []
    for reading in [{"quotechar": '"'}, *readings]:
        try:
            for fields in csv.reader(io.StringIO(content.replace("\0", "")), delimiter=delimiter, **reading):
                yield from fields
        except csv.Error:
            continue


def _of_parquet(path: str) -> Iterator[str]:
    import pyarrow.parquet as pq

    with storage.open_bytes(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(parquet_records.BATCH_ROWS):
            yield from (t for t in _strings(batch.to_pylist()) if t.count(" ") + 1 >= LEAST_WORDS)
