"""The table of formats: to add one, write its module and name it here.

A format says how its beginning looks, how its records are read and where a file may be cut.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from beam_jobs.reading import delimited, json_documents, json_records, marked_text
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import Item, Stream, Tally, find_line_end


@dataclass(frozen=True)
class Format:
    """What is known of a format."""

    recognize: Callable[[bytes], bool] = lambda start: False
    """Whether a file is in it, by its beginning without a BOM and white space. The first format of
    the table that says yes is taken. Those of JSON are told apart by json_records."""
    read: Callable[[Stream, Layout, Tally], Iterator[Item]] | None = None
    """Yields (line, record) or a reject; none for what is no stream of records."""
    find_boundary: Callable[[bytes, int, Layout], int] = find_line_end
    """Returns the first place at or after `least` in bytes that begin with a record where a file
    may be cut, or -1."""
    is_stateless: Callable[[Layout], bool] = lambda layout: True
    """Whether a boundary can be recognized without reading from the previous one on."""
    inspect: Callable[[bytes, Layout], Layout] | None = None
    """Completes the layout by the beginning of a file."""


FORMATS: dict[str, Format] = {
    "json_lines": Format(read=json_records.read_json_lines),
    "json_objects": Format(
        read=json_records.read_json_objects,
        find_boundary=json_records.find_object_boundary,
        is_stateless=lambda layout: False,
    ),
    "json_table": Format(  # which only the whole file shows (json_documents.find_orient)
        read=json_documents.read_json_table,
        find_boundary=lambda stretch, least, layout: -1,
        is_stateless=lambda layout: False,
    ),
    "python_lines": Format(read=json_records.read_python_lines),
    "fasttext": Format(
        lambda start: start.startswith(b"__label__"),
        marked_text.read_fasttext,
        inspect=marked_text.detect_labels_and_titles,
    ),
    "snap": Format(
        lambda start: bool(marked_text.SNAP_KEY.match(start)),
        marked_text.read_snap,
        marked_text.find_blank_line_end,
    ),
    "parquet": Format(lambda start: start.startswith(b"PAR1")),
    "text": Format(  # only where it is asked for: any text is some
        read=marked_text.read_text,
        find_boundary=marked_text.find_document_end,
        inspect=marked_text.detect_blocks,
    ),
    "delimited": Format(
        delimited.recognize,
        delimited.read_delimited,
        delimited.find_record_end,
        is_stateless=lambda layout: not layout.has_quotes,
        inspect=delimited.detect_delimited_layout,
    ),
}
if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]
"""What `--format` takes."""
