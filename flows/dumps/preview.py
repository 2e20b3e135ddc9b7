"""What each file of a dump holds, before anything is made of it."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from amazon_electra.beam_jobs.config import ReadingConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.labels.stars import Scale, decide_scales, show_rating
from amazon_electra.beam_jobs.labels.values import LABEL
from amazon_electra.beam_jobs.reading import detection, fields
from amazon_electra.beam_jobs.reading.compression import PlainStream
from amazon_electra.beam_jobs.reading.format import RowFormat
from amazon_electra.beam_jobs.reading.formats import find_format
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from amazon_electra.beam_jobs.reading.work_units import DumpFile, list_dump_files
from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.store.stage import Stage

PREVIEW_BYTES = 1 << 20  # uncompressed, of a file that is looked at
PREVIEW_ROWS = 1000
SHOWN = 10
TEXT_CHARACTERS = 60


@dataclass(frozen=True)
class Preview:
    """The first records of a file."""

    file: DumpFile
    head: list[Any]
    """Records and rejects."""
    count: int
    """Of the whole file, estimated."""
    is_whole: bool = False
    """Whether the file has no more records."""

    @cached_property
    def mapping(self) -> dict[str, str]:
        """Field → column."""
        return dict(self.file.layout.mapping)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [item[1] for item in self.head if not isinstance(item, Reject)]

    @property
    def rejects(self) -> int:
        return len(self.head) - len(self.records)

    @cached_property
    def reviews(self) -> list[fields.Review]:
        read_review = fields.make_review_reader(self.mapping, Counter())
        return [read_review(record) for record in self.records]

    def count_values(self, column: str) -> Counter[str]:
        """Return how often each value of a label occurs, as typed."""
        read = fields.make_label_reader(column, self.mapping.get(f"{LABEL}{column}", column))
        return Counter(value for value in map(read, self.records) if value is not None)


def decide_scale(chosen: Dump, previews: Iterable[Preview]) -> Scale:
    """Return the scale of the stars; UserError where the first records leave it open."""
    counts = {
        preview.file.name: Counter(r.rating for r in preview.reviews if r.rating)
        for preview in previews
    }
    return decide_scales(counts, "the dump", chosen.stars_scale)


def describe_files(chosen: Dump, previews: Sequence[Preview]) -> Iterator[str]:
    """Yield lines about what the files of a dump hold, by their first records. Of files with the
    same columns only the first is described; those with rejects are named, all are counted.
    """
    kinds = dict[tuple[Any, ...], list[Preview]]()
    for preview in previews:
        layout = preview.file.layout
        kinds.setdefault((layout.name, layout.mapping, layout.unused), []).append(preview)
    for first, *others in kinds.values():
        yield describe_file(first)
        yield from describe_columns(first)
        yield from describe_labels(chosen, [first, *others])
        yield from describe_reviews(first)
        yield from (describe_file(one) for one in others if one.rejects)
        if others:
            more = format_count(len(others), "more file")
            reviews = format_count(sum(one.count for one in others), "review")
            yield f"          and {more} with these columns, about {reviews}"
    if any(review.rating for preview in previews for review in preview.reviews):
        try:
            yield f"stars     on the scale {decide_scale(chosen, previews).name}"
        except UserError as mistake:
            yield f"stars     {mistake}"


def describe_file(preview: Preview) -> str:
    """Return a line about a file: its format, about how many reviews it has, and its rejects."""
    file, rejects = preview.file, preview.rejects
    packed = f", {file.compression}" if file.compression else ""
    damaged = f"; {rejects:,} of the first {len(preview.head):,} are rejected" if rejects else ""
    count = format_count(preview.count, "review")
    return f"file      {file.name}: {file.layout.name}{packed}, about {count}{damaged}"


def describe_columns(preview: Preview) -> Iterator[str]:
    layout = preview.file.layout
    used = ", ".join(f"{field} ← {column}" for field, column in layout.mapping)
    unused = ", ".join(name or '""' for name in layout.unused)
    if used:
        yield f"columns   {used}" + (f"; not used: {unused}" if unused else "")


def describe_labels(chosen: Dump, previews: Sequence[Preview]) -> Iterator[str]:
    """Yield a line about each label: the commonest of its values, as typed."""
    for column in chosen.labels:
        values = sum((preview.count_values(column) for preview in previews), Counter[str]())
        most = ", ".join(f"{value} {n:,}" for value, n in values.most_common(SHOWN))
        more = f" and {len(values) - SHOWN:,} more" if len(values) > SHOWN else ""
        yield f"label     {column}: {most or 'none'}{more}"


def describe_reviews(preview: Preview) -> Iterator[str]:
    for review in preview.reviews[:SHOWN]:
        stars = f"stars {show_rating(review.rating[0])}" if review.rating else "no stars"
        text = " ".join(str(review.text).split())
        cut = text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - 1]}…"
        yield f"          {stars:<9} {cut}"


def read_previews(chosen: Dump, dump: Stage) -> list[Preview]:
    """Read the first records of each file of a dump; UserError if these are all, without a text."""
    paths = tuple(dump.result["paths"])
    files = list_dump_files(chosen.narrow(ReadingConfig), paths, chosen.labels)
    previews = list(map(read_preview, files))
    for preview in previews:
        layout = preview.file.layout
        if isinstance(find_format(layout.name), RowFormat):  # only the columns are known so far
            detection.check_texts(preview.records, layout.text_columns, preview.file.name)
    texts = (str(review.text or "") for preview in previews for review in preview.reviews)
    has_text = not all(one.is_whole for one in previews) or any(map(str.strip, texts))
    columns = fields.list_columns(files[0].layout)
    require(has_text, f"{files[0].name}: no text in any of its records; it has {columns}")
    return previews


def read_preview(file: DumpFile) -> Preview:
    """Read the first records of a file, and estimate how many it has."""
    format = find_format(file.layout.name)
    if isinstance(format, RowFormat):
        with storage.open_bytes(file.path) as stream:
            items = format.read_rows(stream, file.name, file.layout, Tally(), 0, None)
            rows = fields.finish_records(items, file.layout, (), Tally())
            head = list(islice(rows, PREVIEW_ROWS))
            is_whole = next(rows, None) is None
            each = len(head) / max(head[-1][0], 1) if head else 1  # reviews of a row
            count = len(head) if is_whole else round(each * format.count_rows(stream, file.layout))
            return Preview(file, head, count, is_whole)
    with PlainStream(file.path, file.compression, file.member, file.layout.max_expansion) as plain:
        block = plain.read(PREVIEW_BYTES)
        is_whole = not plain.read(1)
    if not is_whole:
        least = len(block) // 2
        end = format.find_boundary(block, least, file.layout) if least else -1
        block = block[:end] if end > 0 else block
    head = list(detection.read_records(io.BytesIO(block), file.layout, Tally(), header=True))
    count = len(head) if is_whole else round(len(head) * file.plain_size / max(len(block), 1))
    return Preview(file, head, count, is_whole)
