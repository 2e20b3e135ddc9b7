"""What each file of a dump holds, before anything is made of it."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.config import ReadingConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, show_option
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.labels.classes import order_classes
from amazon_electra.beam_jobs.labels.stars import Scale, decide_scales, describe_scale, show_rating
from amazon_electra.beam_jobs.labels.values import (
    LABEL,
    decide_values,
    split_classes,
)
from amazon_electra.beam_jobs.reading import detection, fields, work_units
from amazon_electra.beam_jobs.reading.compression import PlainStream
from amazon_electra.beam_jobs.reading.format import RowFormat
from amazon_electra.beam_jobs.reading.formats import find_format
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from amazon_electra.beam_jobs.reading.work_units import DumpFile, list_dump_files
from amazon_electra.beam_jobs.text.cleaning import repair_mojibake, show_mojibake
from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.store.stage import Stage

PREVIEW_BYTES = 1 << 20  # uncompressed, of a file that is looked at
PARQUET_ROWS = 1000
SHOWN, SHOWN_VALUES = 10, 3
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
    decoded_as_cp1252: int = 0
    """Texts among them that are not in the dump's encoding."""

    @cached_property
    def mapping(self) -> dict[str, str]:
        """Field → column."""
        return dict(self.file.layout.mapping)

    @property
    def labels(self) -> list[str]:
        return [field.removeprefix(LABEL) for field in self.mapping if field.startswith(LABEL)]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [item[1] for item in self.head if not isinstance(item, Reject)]

    @cached_property
    def reviews(self) -> list[fields.Review]:
        read_review = fields.make_review_reader(self.mapping, Counter())
        return [read_review(record) for record in self.records]

    def count_values(self, column: str) -> Counter[str]:
        """Return how often each value of a label occurs, as typed."""
        read = fields.make_label_reader(column, self.mapping.get(f"{LABEL}{column}", column))
        return Counter(value for value in map(read, self.records) if value is not None)


def count_classes(typed: Mapping[str, int], folds: bool) -> Counter[str]:
    """Return how often each class of a label occurs, by its values as typed."""
    values, counts = decide_values(typed, folds), Counter[str]()
    for value, n in typed.items():
        if (found := values.find_class(value)) is not None:
            for name in split_classes(found) if values.is_multilabel else [found]:
                counts[name] += n
    return counts


def describe_files(chosen: Dump, previews: Sequence[Preview]) -> Iterator[str]:
    """Yield lines about what the files of a dump hold, by their first records."""
    counts, scale, about = count_ratings(previews), None, list[str]()
    if any(counts.values()):
        try:
            scale = decide_scales(counts, "the dump", chosen.stars_scale)
            numbers = {number for each in counts.values() for number, _ in each}
            about = [f"on the scale {scale.name}", describe_scale(scale, numbers)]
        except UserError as mistake:
            about = [str(mistake)]
    for preview in previews:
        yield from describe_file(preview, scale, chosen.fold_labels)
    layouts = {preview.file.name: preview.file.layout for preview in previews}
    yield from fields.warn_of_lacking_labels(chosen.labels, layouts)
    yield from (f"stars     {line}" for line in about if line)
    texts = [str(review.text) for one in previews for review in one.reviews if review.text]
    shown = [found for text in texts if (found := show_mojibake(text))]
    if shown and not chosen.repair_mojibake:
        example = min(shown, key=len)
        yield (
            f"encoding  mojibake in {format_count(len(shown), 'text')} of the first, such as "
            f"{example!r} for {repair_mojibake(example)!r}; "
            "`--dump.repair_mojibake true` mends it"
        )


def describe_file(preview: Preview, scale: Scale | None, folds: bool) -> Iterator[str]:
    """Yield lines about a file: format, columns and their use, ten records, about how many. `scale`
    is that of the stars, if it is certain; `folds` whether spellings of a label are joined.
    """
    file, layout, reviews = preview.file, preview.file.layout, preview.reviews
    rejects = Counter(item.reason for item in preview.head if isinstance(item, Reject))
    packed = f", {file.compression}" if file.compression else ""
    damaged = f"; of the first are left out: {format_most(rejects)}" if rejects else ""
    count = format_count(preview.count, "review")
    yield f"file      {file.name}: {layout.name}{packed}, about {count}{damaged}"
    if preview.mapping:
        used = ", ".join(f"{field} ← {column}" for field, column in layout.mapping)
        unused = ", ".join(name or '""' for name in layout.unused)
        yield f"columns   {used}" + (f"; not used: {unused}" if unused else "")
    title, missing = preview.mapping.get("title"), sum(r.text is None for r in reviews)
    if title and 10 * missing > len(reviews):
        entry = show_option("--columns", fields.format_entry("text", title))
        yield f"texts     {missing:,} of {len(reviews):,} have none; {entry} reads {title} alone"
    for column in preview.labels:
        counts = count_classes(preview.count_values(column), folds)
        steps = " < ".join(order_classes([name for name, _ in counts.most_common()]))
        order = f"; in the order {steps}" if steps else ""
        yield f"label     {column}: {format_most(counts, SHOWN)}{order}"
    if n := preview.decoded_as_cp1252:
        other = f"not in {layout.encoding} and read as cp1252; name another with `dump.encoding`"
        yield f"encoding  {n:,} of the first texts are {other}"
    ratings = [describe_rating(review.rating, scale) for review in reviews[:SHOWN]]
    width = max(map(len, ["no stars", *ratings]))
    for stars, review in zip(ratings, reviews, strict=False):
        text = " ".join(str(review.text).split())
        cut = text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - 1]}…"
        yield f"          {stars:<{width}}  {cut}"


def format_most(counts: Counter[str], shown: int = SHOWN_VALUES) -> str:
    """Return the most frequent values with their counts, and how many more there are."""
    most = ", ".join(f"{value} {n:,}" for value, n in counts.most_common(shown))
    return most + (f" and {len(counts) - shown:,} more" if len(counts) > shown else "")


def describe_rating(rating: tuple[float, float] | None, scale: Scale | None) -> str:
    """Return a rating as it is given, and what the job will make of it where that differs."""
    if not rating:
        return "no stars"
    given = show_rating(rating[0])
    if not scale:
        return given
    number = int(scale.map_ratings(np.array(rating[:1]))[0])
    stars = f"{number or 'no'} {'star' if number == 1 else 'stars'}"
    return stars if number == rating[0] else f"{given} ({stars})"


def count_ratings(previews: Iterable[Preview]) -> dict[str, Counter[tuple[float, float]]]:
    """Return how often each rating occurs in the first records of each file."""
    return {
        preview.file.name: Counter(r.rating for r in preview.reviews if r.rating)
        for preview in previews
    }


def read_previews(chosen: Dump, dump: Stage) -> list[Preview]:
    """Read the first records of each file of a dump; UserError if these are all, without a text."""
    paths = tuple(dump.result["paths"])
    files = list_dump_files(chosen.narrow(ReadingConfig), paths, chosen.labels)
    previews = list(map(read_preview, files))
    is_named = "text" in fields.parse_column_overrides(chosen.columns)
    for preview in previews:
        layout = preview.file.layout
        if isinstance(find_format(layout.name), RowFormat):  # only the columns are known so far
            text = dict(layout.mapping)["text"]
            of_text = dict(layout.joined).get(text, (text,))
            detection.check_texts(preview.records, of_text, preview.file.name, is_named)
    texts = (review.text for preview in previews for review in preview.reviews)
    is_whole = all(preview.is_whole for preview in previews)
    if is_whole and not any(isinstance(text, str) and text.strip() for text in texts):
        name, columns = files[0].name, fields.list_columns(files[0].layout)
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        count = sum(len(preview.head) for preview in previews)
        setting = "name its column with `--dump.columns text=NAME`"
        why = f"no text in {count:,} records; {setting}; there are {columns}"
        raise UserError(f"{name}{more}: {why if count else 'it has no record'}")
    return previews


def read_preview(file: DumpFile) -> Preview:
    """Read the first records of a file, and estimate how many it has."""
    format = find_format(file.layout.name)
    if isinstance(format, RowFormat):
        with storage.open_bytes(file.path) as stream:
            layout = format.add_unused(stream, file.layout)
            rows = format.read_rows(stream, layout, Tally(), 0, None, file.name)
            head = list(islice(rows, PARQUET_ROWS))
            is_whole = next(rows, None) is None
            each = len(head) / max(head[-1][0], 1) if head else 1  # reviews of a row
            count = len(head) if is_whole else round(each * format.count_rows(stream, file.layout))
            return Preview(file, head, count, is_whole)
    with PlainStream(file.path, file.compression, file.member, file.layout.max_expansion) as plain:
        block = plain.read(PREVIEW_BYTES)
        is_whole = not plain.read(1)
    if not is_whole:
        least = len(block) // 2
        end = work_units.find_boundary(block, least, file.layout) if least else -1
        block = block[:end] if end > 0 else block
    tally = Tally()
    head = list(detection.read_records(io.BytesIO(block), file.layout, tally, header=True))
    count = len(head) if is_whole else round(len(head) * file.plain_size / max(len(block), 1))
    return Preview(file, head, count, is_whole, tally.notes["decoded_as_cp1252"])
