"""Where a file may be cut so that no record is: for each format, the first record that begins at or after a place."""

from beam_jobs.formats import json_records
from beam_jobs.formats.layout import Layout

GIVE_UP = 4  # a stretch without a boundary for so many times its size is broken: cut where a record may begin


def is_stateless(found: Layout) -> bool:
    """Whether a boundary can be seen without reading from the last one on."""
    return found.name in {"json_lines", "python_lines", "fasttext", "snap"} or (
        found.name == "delimited" and not found.quoted
    )


def next_boundary(stretch: bytes, least: int, found: Layout) -> int:
    """The first boundary at or after `least` in bytes that begin with a record; -1 if there is none yet."""
    if found.name == "snap":
        return _blank_line(stretch, least)
    if found.name == "json_objects":
        at = next((stop for _, stop in json_records.whole_objects(stretch) if stop >= least), -1)
        return at if at >= 0 or len(stretch) < GIVE_UP * least else json_records.next_object(stretch, least)
    if found.name == "delimited" and found.quoted:
        at = _line_end_outside_quotes(stretch, least, found)
        if 0 <= at <= GIVE_UP * least or len(stretch) < GIVE_UP * least:
            return at
    return stretch.find(b"\n", max(least - 1, 0)) + 1 or -1


def _blank_line(stretch: bytes, least: int) -> int:
    ends = [at + len(mark) for mark in (b"\n\n", b"\n\r\n") if (at := stretch.find(mark, max(least - 2, 0))) >= 0]
    return min(ends, default=-1)


def _line_end_outside_quotes(stretch: bytes, least: int, found: Layout) -> int:
    inside = _quotes(stretch, 0, least, found) % 2 == 1
    position = least
    while (end := stretch.find(b"\n", position)) >= 0:
        inside ^= _quotes(stretch, position, end, found) % 2 == 1
        if not inside:
            return end + 1
        position = end + 1
    return -1


def _quotes(stretch: bytes, start: int, stop: int, found: Layout) -> int:
    return stretch.count(b'"', start, stop) - (stretch.count(b'\\"', start, stop) if found.escaped else 0)
