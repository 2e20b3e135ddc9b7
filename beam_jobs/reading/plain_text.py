"""Reads plain text: a document on each line, or in each block of lines."""

import re
from collections.abc import Iterator
from dataclasses import replace

from amazon_electra.beam_jobs.reading.format import Format
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import (
    Item,
    Reject,
    Stream,
    Tally,
    decode_text,
    find_blank_line_end,
    find_line_end,
    make_reject,
    read_lines,
)

EMPTY_LINE = re.compile(rb"\n[ \t\r]*\n")


class PlainText(Format):
    """Read only where it is asked for: any text is some."""

    name = "text"

    def inspect(self, head: bytes, layout: Layout) -> Layout:
        """Detect whether documents are blocks of lines: they are lines where no line is empty."""
        return replace(layout, in_blocks=EMPTY_LINE.search(head.strip()) is not None)

    def read(
        self, stream: Stream, layout: Layout, tally: Tally, header: bool = True
    ) -> Iterator[Item]:
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

    def find_boundary(self, stretch: bytes, least: int, layout: Layout) -> int:
        """Return the first place at or after `least` behind a document of plain text, or -1."""
        if layout.in_blocks:
            return find_blank_line_end(stretch, least)
        return find_line_end(stretch, least, layout)
