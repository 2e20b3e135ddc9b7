"""Reads fastText's labelled lines, SNAP's blocks of keys and values, and plain text."""

import re
from collections.abc import Iterator
from dataclasses import replace

from beam_jobs.reading.layout import Labels, Layout
from beam_jobs.reading.lines import (
    Item,
    Reject,
    Stream,
    Tally,
    decode_text,
    find_line_end,
    make_reject,
    read_lines,
)

POLARITY_STARS = {"__label__1": 2, "__label__2": 4}  # 1 and 2 stars, 4 and 5 stars
LABEL_STARS = {f"__label__{n}": n for n in range(1, 6)}
STARS_BY_LABELS: dict[Labels, dict[str, int]] = {
    "polarity": POLARITY_STARS,
    "stars": LABEL_STARS,
    "unknown": {},
}
LABEL = re.compile(r"__label__\S*")
SNAP_KEY = re.compile(rb"[A-Za-z]+/[A-Za-z]+: ")
MIN_TITLED_SHARE = 0.9  # of the lines begin with a title: those of Kaggle's file do all
MAX_TITLE_CHARACTERS = 200  # characters
EMPTY_LINE = re.compile(rb"\n[ \t\r]*\n")


class UnexpectedLabel(ValueError):
    """A label that contradicts what the labels at the beginning of the file were taken for."""


def detect_labels_and_titles(head: bytes, layout: Layout) -> Layout:
    """Detect `labels` and `has_titles` from the first lines of a fastText file."""
    whole = head[: head.rfind(b"\n") + 1] or head
    lines = [
        line
        for line in decode_text(whole, Tally(), layout.encoding).lstrip("\ufeff").split("\n")
        if LABEL.match(line)
    ]
    seen = {line.split(None, 1)[0] for line in lines}
    labels: Labels = (
        "polarity"
        if seen <= POLARITY_STARS.keys()
        else "stars"
        if seen <= LABEL_STARS.keys()
        else "unknown"
    )
    titled = sum(line.find(": ", 0, MAX_TITLE_CHARACTERS) > 0 for line in lines)
    has_titles = titled >= MIN_TITLED_SHARE * len(lines)
    return replace(layout, labels=labels, has_titles=has_titles)


def read_fasttext(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """Read `__label__2 Title: text`; all is text if the file has no titles or the line no ": "."""
    stars = STARS_BY_LABELS[layout.labels]
    for item in read_lines(stream, layout.max_record_bytes, tally):
        if isinstance(item, Reject):
            yield item
            continue
        number, raw = item
        line = decode_text(raw, tally, layout.encoding).strip("\ufeff \r\t")
        if not line:
            continue
        label, _, rest = line.partition(" ")
        if not label.startswith("__label__"):
            yield make_reject(number, "no label", raw)
            continue
        if label in LABEL_STARS and stars and label not in stars:
            raise UnexpectedLabel(
                f"has {label}, but its beginning only {', '.join(stars)}, "
                "which were taken for polarity; "
                "mix its lines (shuf), so that all labels are among the first"
            )
        title, colon, text = rest.partition(": ") if layout.has_titles else ("", "", "")
        record = {"text": text, "title": title} if colon else {"text": rest, "title": None}
        if stars is POLARITY_STARS:
            tally.notes["stars_from_polarity"] += label in stars
        given = stars.get(label)
        name = label.removeprefix("__label__")
        yield number, record | {"stars": f"{given}/5" if given else None, "label": name}


def read_snap(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """Read `review/text: …` lines with a blank line between records.

    A line without a key continues the one before.
    """
    record: dict[str, str] = {}
    raws: list[bytes] = []
    first, size, key = 1, 0, ""

    def finish_record() -> Item:
        if size > layout.max_record_bytes:
            return make_reject(first, "record too long", b"\n".join(raws))
        return (first, record) if record else make_reject(first, "no key", b"\n".join(raws))

    for item in read_lines(stream, layout.max_record_bytes, tally):
        if isinstance(item, Reject):
            yield item
            continue
        number, raw = item
        line = decode_text(raw, tally, layout.encoding).strip("\ufeff\r")
        if line.strip() and size <= layout.max_record_bytes:
            first, size = first if raws else number, size + len(raw)
            raws.append(raw)
            name, colon, value = line.partition(": ")
            if colon and "/" in name and " " not in name:
                key, record[name] = name, value
            elif key:
                record[key] += " " + line
        elif not line.strip() and raws:
            yield finish_record()
            record, size, key, raws = {}, 0, "", []
    if raws:
        yield finish_record()


def find_blank_line_end(stretch: bytes, least: int, layout: Layout) -> int:
    """Return the first place at or after `least` behind an empty line, or -1."""
    ends = [
        at + len(mark)
        for mark in (b"\n\n", b"\n\r\n")
        if (at := stretch.find(mark, max(least - 2, 0))) >= 0
    ]
    return min(ends, default=-1)


def detect_blocks(head: bytes, layout: Layout) -> Layout:
    """Detect whether documents are blocks of lines: they are lines where no line is empty."""
    return replace(layout, in_blocks=EMPTY_LINE.search(head.strip()) is not None)


def read_text(stream: Stream, layout: Layout, tally: Tally) -> Iterator[Item]:
    """Read documents of plain text: lines, or blocks that end at an empty line."""
    held: list[bytes] = []
    first, size = 1, 0

    def finish_block() -> Item:
        block = b"\n".join(held)
        if size > layout.max_record_bytes:
            return make_reject(first, "record too long", block, size)
        return first, {"text": decode_text(block, tally, layout.encoding)}

    for item in read_lines(stream, layout.max_record_bytes, tally):
        if isinstance(item, Reject):
            yield item
            continue
        number, raw = item
        if not raw.strip():
            if held:
                yield finish_block()
            held, size = [], 0
        elif layout.in_blocks:
            first = first if held else number
            if size <= layout.max_record_bytes:
                held.append(raw)
            size += len(raw) + 1
        else:
            yield number, {"text": decode_text(raw, tally, layout.encoding)}
    if held:
        yield finish_block()


def find_document_end(stretch: bytes, least: int, layout: Layout) -> int:
    """Return the first place at or after `least` behind a document of plain text, or -1."""
    if layout.in_blocks:
        return find_blank_line_end(stretch, least, layout)
    return find_line_end(stretch, least, layout)
