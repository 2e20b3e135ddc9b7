"""Reads SNAP's blocks of `review/text: …` lines, which an empty line ends."""

import re
from collections.abc import Iterator

from amazon_electra.beam_jobs.reading.format import Format
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import (
    Item,
    Reject,
    Stream,
    Tally,
    decode_text,
    find_blank_line_end,
    make_reject,
    read_lines,
)

KEY = re.compile(rb"[A-Za-z]+/[A-Za-z]+: ")


class Snap(Format):
    """A record has a line for each of its fields."""

    name, endings = "snap", ("txt",)
    has_only_strings = True

    def recognize(self, start: bytes) -> bool:
        return KEY.match(start) is not None

    def read(
        self, stream: Stream, layout: Layout, tally: Tally, header: bool = True
    ) -> Iterator[Item]:
        """A line without a key continues the one before."""
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

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        return find_blank_line_end(stretch, least)
