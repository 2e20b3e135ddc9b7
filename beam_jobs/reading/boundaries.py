"""Finds, for each format, places where a file can be cut without cutting a record."""

from beam_jobs.reading import json_records
from beam_jobs.reading.layout import Layout

GIVE_UP_FACTOR = 4
"""A stretch without a boundary for so many times its size is cut where a record may begin."""


def is_stateless(found: Layout) -> bool:
    """Return whether a boundary can be recognized without reading from the previous one on."""
    return found.name in {"json_lines", "python_lines", "fasttext", "snap"} or (
        found.name == "delimited" and not found.has_quotes
    )


def find_boundary(stretch: bytes, least: int, found: Layout) -> int:
    """Return the first boundary at or after `least` in bytes that begin with a record, or -1."""
    if found.name == "snap":
        return _find_blank_line_end(stretch, least)
    if found.name == "json_objects":
        first = len(found.prefix) if stretch.startswith(found.prefix) else 0
        objects = json_records.find_whole_objects(stretch, first)
        at = next((stop for _, stop in objects if stop >= least), -1)
        if at >= 0 or len(stretch) < GIVE_UP_FACTOR * least:
            return at
        return json_records.find_next_object(stretch, least)
    if found.name == "delimited" and found.has_quotes:
        at = _find_line_end_outside_quotes(stretch, least, found)
        if 0 <= at <= GIVE_UP_FACTOR * least or len(stretch) < GIVE_UP_FACTOR * least:
            return at
    return stretch.find(b"\n", max(least - 1, 0)) + 1 or -1


def _find_blank_line_end(stretch: bytes, least: int) -> int:
    ends = [
        at + len(mark)
        for mark in (b"\n\n", b"\n\r\n")
        if (at := stretch.find(mark, max(least - 2, 0))) >= 0
    ]
    return min(ends, default=-1)


def _find_line_end_outside_quotes(stretch: bytes, least: int, found: Layout) -> int:
    inside = _count_quotes(stretch, 0, least, found) % 2 == 1
    position = least
    while (end := stretch.find(b"\n", position)) >= 0:
        inside ^= _count_quotes(stretch, position, end, found) % 2 == 1
        if not inside:
            return end + 1
        position = end + 1
    return -1


def _count_quotes(stretch: bytes, start: int, stop: int, found: Layout) -> int:
    return stretch.count(b'"', start, stop) - (
        stretch.count(b'\\"', start, stop) if found.has_escapes else 0
    )
