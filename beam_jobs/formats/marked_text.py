"""Text with marks: fastText's labelled lines and SNAP's key/value blocks."""

from collections.abc import Iterator

from beam_jobs.formats.layout import Layout
from beam_jobs.formats.lines import Rejected, Stream, Tally, decode, line_blocks, rejected

POLARITY_STARS = {"__label__1": 2, "__label__2": 4}  # 1 and 2 stars, 4 and 5 stars


def read_fasttext(stream: Stream, layout: Layout, tally: Tally) -> Iterator[tuple[int, dict] | Rejected]:
    """`__label__2 Title: text`; a line without ": " is all text."""
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
            title, colon, text = rest.partition(": ")
            record = {"text": text, "title": title} if colon else {"text": rest, "title": None}
            tally.notes["stars_from_polarity"] += label in POLARITY_STARS
            yield i, record | {"stars": POLARITY_STARS.get(label)}


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
