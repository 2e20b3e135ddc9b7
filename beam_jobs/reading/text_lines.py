"""Reads three formats of plain lines: fastText's labelled ones, SNAP's blocks, and mere text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from amazon_electra.beam_jobs.reading.format import Format, Layout, Names
from amazon_electra.beam_jobs.reading.lines import (
    Item,
    Stream,
    Tally,
    WrongFile,
    decode_text,
    find_line_end,
    make_reject,
    read_blocks,
    read_lines,
)

POLARITY = {"__label__1": False, "__label__2": True}  # 1 and 2 stars, 4 and 5 stars
STARS = {f"__label__{n}": f"{n}/5" for n in range(1, 6)}
LABEL = re.compile(r"__label__\S*")
MIN_TITLED_SHARE = 0.9  # of the lines begin with a title: those of Kaggle's file do all
MAX_TITLE_CHARACTERS = 200
KEY = re.compile(rb"[A-Za-z]+/[A-Za-z]+: ")
EMPTY_LINE = re.compile(rb"\n[ \t\r]*\n")


@dataclass(frozen=True)
class LabelledLines:
    """What the first lines of a fastText file show."""

    stars: tuple[tuple[str, Any], ...]  # of its labels, if they are stars or polarity
    has_titles: bool


class FastText(Format):
    """Lines such as `__label__2 Title: text`; labels are stars or polarity, or else classes."""

    name, endings = "fasttext", ("txt",)

    def recognize(self, start: bytes) -> bool:
        return start.startswith(b"__label__")

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        whole = head[: head.rfind(b"\n") + 1] or head
        text = decode_text(whole, Tally(), layout.encoding).lstrip("\ufeff")
        lines = [line for line in text.split("\n") if LABEL.match(line)]
        seen = {line.split(None, 1)[0] for line in lines}
        stars = next((one for one in (POLARITY, STARS) if seen <= one.keys()), {})
        titled = sum(line.find(": ", 0, MAX_TITLE_CHARACTERS) > 0 for line in lines)
        has_titles = titled >= MIN_TITLED_SHARE * len(lines)
        return replace(layout, found=LabelledLines((*stars.items(),), has_titles))

    def parse(self, number: int, line: bytes, layout: Layout, tally: Tally) -> Item | None:
        """All of a line is text if the file has no titles or the line no ": "."""
        stars = dict(layout.found.stars)
        content = decode_text(line, tally, layout.encoding).strip("\ufeff \r\t")
        label, _, rest = content.partition(" ")
        if not label.startswith("__label__"):
            return make_reject(number, "no label", line) if content else None
        if label in STARS and stars and label not in stars:
            raise WrongFile(
                f"has {label}, but its beginning only {', '.join(stars)}; "
                "mix its lines (shuf), so that all labels are among the first"
            )
        title, colon, text = rest.partition(": ") if layout.found.has_titles else ("", "", "")
        record: dict[str, Any] = {"stars": stars.get(label)} if stars else {}
        record |= {"text": text if colon else rest, "title": title if colon else None}
        return number, record | {"label": label.removeprefix("__label__")}


class Blocks(Format):
    """A format whose records may be blocks of lines between empty ones: where `found` says so."""

    def split(self, stream: Stream, layout: Layout, tally: Tally) -> Iterator[Any]:
        return (read_blocks if layout.found else read_lines)(stream, layout.max_record_bytes, tally)

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        if not layout.found:
            return find_line_end(stretch, least)
        places = ((stretch.find(mark, max(least - 2, 0)), mark) for mark in (b"\n\n", b"\n\r\n"))
        return min((at + len(mark) for at, mark in places if at >= 0), default=-1)


class Snap(Blocks):
    """A block has a line `review/text: …` for each field; one without a key continues it."""

    name, endings = "snap", ("txt",)

    def recognize(self, start: bytes) -> bool:
        return KEY.match(start) is not None

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        return replace(layout, found=True)

    def parse(self, number: int, line: bytes, layout: Layout, tally: Tally) -> Item:
        record, key = dict[str, str](), ""
        for raw in line.split(b"\n"):
            text = decode_text(raw, tally, layout.encoding).strip("\ufeff\r")
            name, colon, value = text.partition(": ")
            if colon and "/" in name and " " not in name:
                key, record[name] = name, value
            elif key:
                record[key] += " " + text
        return (number, record) if record else make_reject(number, "no key", line)


class PlainText(Blocks):
    """A document on each line, or in each block of lines if some line is empty."""

    name = "text"

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        return replace(layout, found=EMPTY_LINE.search(head.strip()) is not None)

    def parse(self, number: int, line: bytes, layout: Layout, tally: Tally) -> Item | None:
        is_blank = not line.strip()
        return None if is_blank else (number, {"text": decode_text(line, tally, layout.encoding)})
