"""Text with marks: fastText's labelled lines and SNAP's key/value blocks."""

import re
from collections.abc import Iterator
from typing import Any

from beam_jobs.formats.layout import Labels, Layout
from beam_jobs.formats.lines import Rejected, Stream, Tally, decode, line_blocks, rejected

POLARITY_STARS = {"__label__1": 2, "__label__2": 4}  # 1 and 2 stars, 4 and 5 stars
STARS = {f"__label__{n}": n for n in range(1, 6)}
STARS_OF: dict[Labels, dict[str, int]] = {"polarity": POLARITY_STARS, "stars": STARS, "unknown": {}}
LABEL = re.compile(r"__label__\S*")
TITLED_SHARE = 0.9  # of the lines begin with a title: those of Kaggle's file do all
LONGEST_TITLE = 200  # characters


class OtherLabel(ValueError):
    """A label that shows what the others stand for to be another thing than they were taken for."""


def labels_and_titles(head: bytes, encoding: str) -> dict[str, Any]:
    """What of a layout the first lines of a fastText file tell: `labels`, `titled`."""
    whole = head[: head.rfind(b"\n") + 1] or head
    lines = [line for line in decode(whole, Tally(), encoding).lstrip("\ufeff").split("\n") if LABEL.match(line)]
    seen = {line.split(None, 1)[0] for line in lines}
    labels = "polarity" if seen <= POLARITY_STARS.keys() else "stars" if seen <= STARS.keys() else "unknown"
    titled = sum(line.find(": ", 0, LONGEST_TITLE) > 0 for line in lines)
    return {"labels": labels, "titled": titled >= TITLED_SHARE * len(lines)}


def read_fasttext(stream: Stream, layout: Layout, tally: Tally) -> Iterator[tuple[int, dict] | Rejected]:
    """`__label__2 Title: text`; all is text where the file has no titles, or the line no ": "."""
    stars = STARS_OF[layout.labels]
    for block in line_blocks(stream, layout.longest, tally):
        if isinstance(block, Rejected):
            yield block
            continue
        for i, raw in enumerate(block[1], block[0]):
            line = decode(raw, tally, layout.encoding).strip("\ufeff \r\t")
            if not line:
                continue
            label, _, rest = line.partition(" ")
            if not label.startswith("__label__"):
                yield rejected(i, "no label", raw)
                continue
            if label in STARS and stars and label not in stars:
                raise OtherLabel(
                    f"has {label}, but its beginning only {', '.join(stars)}, which were taken for polarity; "
                    "mix its lines (shuf), so that all labels are among the first"
                )
            title, colon, text = rest.partition(": ") if layout.titled else ("", "", "")
            record = {"text": text, "title": title} if colon else {"text": rest, "title": None}
            if stars is POLARITY_STARS:
                tally.notes["stars_from_polarity"] += label in stars
            yield i, record | {"stars": stars.get(label)}


def read_snap(stream: Stream, layout: Layout, tally: Tally) -> Iterator[tuple[int, dict] | Rejected]:
    """`review/text: …` lines, a blank line between records; a line without a key continues the one before."""
    record: dict[str, str] = {}
    raws: list[bytes] = []
    first, size, key = 1, 0, ""
    for number, raw in _lines(stream, layout, tally):
        if isinstance(raw, Rejected):
            yield raw
            continue
        line = decode(raw, tally, layout.encoding).strip("\ufeff\r")
        if line.strip() and size <= layout.longest:
            first, size = first if raws else number, size + len(raw)
            raws.append(raw)
            name, colon, value = line.partition(": ")
            if colon and "/" in name and " " not in name:
                key, record[name] = name, value
            elif key:
                record[key] += " " + line
        elif not line.strip() and raws:
            yield _snap_record(record, first, raws, size, layout)
            record, size, key, raws = {}, 0, "", []
    if raws:
        yield _snap_record(record, first, raws, size, layout)


def _snap_record(
    record: dict[str, str], first: int, raws: list[bytes], size: int, layout: Layout
) -> tuple[int, dict] | Rejected:
    if size > layout.longest:
        return rejected(first, "record too long", b"\n".join(raws))
    return (first, dict(record)) if record else rejected(first, "no key", b"\n".join(raws))


def _lines(stream: Stream, layout: Layout, tally: Tally) -> Iterator[tuple[int, bytes | Rejected]]:
    for block in line_blocks(stream, layout.longest, tally):
        if isinstance(block, Rejected):
            yield block.line, block
        else:
            yield from enumerate(block[1], block[0])
