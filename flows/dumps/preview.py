"""What each file of a dump holds, told before anything is made of it."""

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

from beam_jobs.config import CorpusOptions
from beam_jobs.reading import detection, parquet_records, work_units
from beam_jobs.reading.compression import open_uncompressed
from beam_jobs.reading.fields import make_review_reader
from beam_jobs.reading.lines import Reject, Tally
from beam_jobs.reading.work_units import DumpFile, list_dump_files
from flows.configuration.parameters import Dump
from flows.runner.store import Store
from flows.stages.dump import build_dump_stage

PREVIEW_BYTES = 1 << 20
"""Uncompressed bytes of a file that are looked at."""
SHOWN = 10
TEXT_CHARACTERS = 60


def describe_dump(dump: Dump, store: Store) -> Iterator[str]:
    """Yield lines about each file: format, columns and their use, ten records, about how many."""

    stage = build_dump_stage(dump, store)
    options = CorpusOptions(
        input=(tuple(stage.result["paths"]),),
        output="",
        format=dump.format or None,
        columns=dump.columns or None,
        encoding=dump.encoding or "utf-8",
    )
    for file in list_dump_files(options):
        yield from describe_file(file)


def describe_file(file: DumpFile) -> Iterator[str]:
    """Yield the lines about one file of a dump."""
    head, count = read_first_records(file)
    records = [item[1] for item in head if not isinstance(item, Reject)]
    packed = f", {file.compression}" if file.compression else ""
    unread = f", {len(head) - len(records)} of the first cannot be read" * (
        len(head) > len(records)
    )
    yield f"file      {file.name}: {file.layout.name}{packed}, about {count:,} reviews{unread}"
    mapping = dict(file.layout.mapping)
    if mapping:
        used = ", ".join(f"{field} ← {column}" for field, column in mapping.items())
        columns = file.layout.columns or tuple(dict.fromkeys(c for r in records for c in r))
        unused = [column for column in columns if column not in mapping.values()]
        yield f"columns   {used}" + (f"; not used: {', '.join(unused)}" if unused else "")
    read_review = make_review_reader(mapping)
    for review in map(read_review, records[:SHOWN]):
        if review:
            stars = "no stars" if review.stars is None else f"{review.stars} stars"
            text = " ".join(str(review.text).split())
            cut = text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - 1]}…"
            yield f"          {stars:<8}  {cut}"


def read_first_records(file: DumpFile) -> tuple[list[Any], int]:
    """Return the first records or rejects of a file, and an estimate of how many it has."""
    if file.layout.name == "parquet":
        whole = work_units.Unit(file, 0, file.path, "", 0, None, file.plain_size)
        with work_units.open_row_groups(whole) as stream:
            rows = parquet_records.read_rows(stream, file.layout, Tally(), 0, None)
            head = list(islice(rows, SHOWN))
            return head, parquet_records.count_rows(stream)
    with open_uncompressed(file.path, file.compression, file.member) as plain:
        block = plain.read(PREVIEW_BYTES)
        is_whole = not plain.read(1)
    if not is_whole:
        block = block[: block.rfind(b"\n") + 1] or block
    reader = detection.read_records(io.BytesIO(block), file.layout, Tally(), header=True)
    head = list(reader)
    count = len(head) if is_whole else round(len(head) * file.plain_size / max(len(block), 1))
    return head, count
