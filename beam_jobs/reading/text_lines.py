"""Reads three formats of plain lines: fastText's labelled ones, SNAP's blocks, and mere text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amazon_electra.beam_jobs.reading.format import Format, Names, Stars
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import (
    TOO_LONG,
    Item,
    Reject,
    Stream,
    Tally,
    WrongFile,
    decode_text,
    find_blank_line_end,
    find_line_end,
    make_reject,
    read_blocks,
    read_lines,
)

POLARITY_STARS = {"__label__1": 2, "__label__2": 4}  # 1 and 2 stars, 4 and 5 stars
LABEL_STARS = {f"__label__{n}": n for n in range(1, 6)}
LABEL = re.compile(r"__label__\S*")
MIN_TITLED_SHARE = 0.9  # of the lines begin with a title: those of Kaggle's file do all
MAX_TITLE_CHARACTERS = 200
KEY = re.compile(rb"[A-Za-z]+/[A-Za-z]+: ")
EMPTY_LINE = re.compile(rb"\n[ \t\r]*\n")


@dataclass(frozen=True)
class LabelledLines:
    """What the first lines of a fastText file show."""

    stars: tuple[tuple[str, int], ...] = tuple(POLARITY_STARS.items())  # of its labels
    has_titles: bool = True


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
        known = [stars for stars in (POLARITY_STARS, LABEL_STARS) if seen <= stars.keys()]
        titled = sum(line.find(": ", 0, MAX_TITLE_CHARACTERS) > 0 for line in lines)
        stars = tuple(known[0].items()) if known else ()
        return replace(layout, found=LabelledLines(stars, titled >= MIN_TITLED_SHARE * len(lines)))

    def find_stars(self, layout: Layout) -> Stars:
        stars = dict(layout.found.stars)
        return "polarity" if stars == POLARITY_STARS else "unsure" if stars else "none"

    def forget_stars(self, layout: Layout) -> Layout:
        return replace(layout, found=replace(layout.found, stars=()))

    def read(self, stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
        """All of a line is text if the file has no titles or the line no ": "."""
        found: LabelledLines = layout.found or LabelledLines()
        stars = dict(found.stars)
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
                raise WrongFile(
                    f"has {label}, but its beginning only {', '.join(stars)}; "
                    "mix its lines (shuf), so that all labels are among the first"
                )
            title, colon, text = rest.partition(": ") if found.has_titles else ("", "", "")
            if stars == POLARITY_STARS:
                tally.notes["stars_from_polarity"] += label in stars
            given = stars.get(label)
            yield (
                number,
                {
                    "text": text if colon else rest,
                    "title": title if colon else None,
                    "stars": f"{given}/5" if given else None,
                    "label": label.removeprefix("__label__"),
                },
            )


class Snap(Format):
    """A block has a line `review/text: …` for each field; one without a key continues it."""

    name, endings = "snap", ("txt",)
    has_only_strings = True

    def recognize(self, start: bytes) -> bool:
        return KEY.match(start) is not None

    def read(self, stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
        for block in read_blocks(stream, layout, tally):
            if isinstance(block, Reject):
                yield block
                continue
            first, lines, size = block
            record, key = dict[str, str](), ""
            for raw in lines:
                line = decode_text(raw, tally, layout.encoding).strip("\ufeff\r")
                name, colon, value = line.partition(": ")
                if colon and "/" in name and " " not in name:
                    key, record[name] = name, value
                elif key:
                    record[key] += " " + line
            if size > layout.max_record_bytes or not record:
                reason = TOO_LONG if size > layout.max_record_bytes else "no key"
                yield make_reject(first, reason, b"\n".join(lines))
            else:
                yield first, record

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        return find_blank_line_end(stretch, least)


class PlainText(Format):
    """A document on each line, or in each block of lines, where it is asked for."""

    name = "text"

    def inspect(self, head: bytes, layout: Layout, overrides: Names, shown: str) -> Layout:
        """`found` says whether documents are blocks: they are lines where no line is empty."""
        return replace(layout, found=EMPTY_LINE.search(head.strip()) is not None)

    def read(self, stream: Stream, layout: Layout, tally: Tally, header: bool) -> Iterator[Item]:
        for block in read_blocks(stream, layout, tally) if layout.found else ():
            if isinstance(block, Reject):
                yield block
                continue
            first, lines, size = block
            raw = b"\n".join(lines)
            if size > layout.max_record_bytes:
                yield make_reject(first, TOO_LONG, raw, size)
            else:
                yield first, {"text": decode_text(raw, tally, layout.encoding)}
        for line in () if layout.found else read_lines(stream, layout.max_record_bytes, tally):
            if isinstance(line, Reject):
                yield line
            elif line[1].strip():
                yield line[0], {"text": decode_text(line[1], tally, layout.encoding)}

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        find = find_blank_line_end if layout.found else find_line_end
        return find(stretch, least)
