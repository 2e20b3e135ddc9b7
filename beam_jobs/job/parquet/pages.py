"""Reads what a Parquet file's columns and pages say that they take, without unpacking them.

The footer may say anything; Arrow allocates and unpacks what the header of each page says. The
numbers of fields are those in parquet.thrift of apache/parquet-format.
"""

import os
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.job.parquet.compact import INT_32, INT_64, MOST_FIELDS, CompactReader, Numbers

FOOTER_END = 8
"""Bytes after the footer: its length and PAR1."""
FIRST_READ, LONGEST_HEADER = 1 << 12, 1 << 24
"""Bytes of a page's header: as many as nearly all need, and as many as Arrow reads."""
PADDING = 100
"""Bytes that Arrow reads beyond the columns of old writers (PARQUET-816)."""
ROW_GROUPS, COLUMNS, UNPACKED_BYTES, ROWS, METADATA = 4, 1, 2, 3, 3
VALUES_OF_CHUNK, PACKED_OF_CHUNK, DATA_OFFSET, DICTIONARY_OFFSET = 5, 7, 9, 11
TYPE, UNPACKED_SIZE, PACKED_SIZE = (1,), (2,), (3,)
DATA, DICTIONARY, DATA_2 = 0, 2, 3
"""Types of pages."""
VALUES = {DATA: (5, 1), DICTIONARY: (7, 1), DATA_2: (8, 1)}
ENCODINGS = {DATA: (5, 2), DATA_2: (8, 4)}
DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 6, 7


@dataclass(frozen=True)
class Chunk:
    """The pages of a column in a row group, as the footer places them."""

    start: int
    packed: int
    """Bytes."""
    values: int


@dataclass(frozen=True)
class RowGroup:
    rows: int
    unpacked: int
    """Bytes, as the footer says."""
    chunks: tuple[Chunk, ...]
    """A chunk for each column."""


@dataclass
class Pages:
    """What the pages of a chunk take."""

    unpacked: int = 0
    """Bytes of all pages."""
    longest: int = 0
    """Bytes of the longest page; no text in it is longer."""
    values: int = 0
    """Of all pages, the dictionary's too."""
    has_deltas: bool = False
    """Whether texts are written as differences from one another, which Arrow gives no dictionary.
    """


def read_row_groups(file: BinaryIO, metadata: pq.FileMetaData) -> list[RowGroup]:
    """Return the row groups of a file with this footer; raise ArrowInvalid if it is false.

    Chunks may not share bytes, else a small file has any number of rows.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - FOOTER_END, 0))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(size - FOOTER_END - length, 0))
    numbers, _ = _read_numbers(file.read(length), INT_64)
    places = {path[1] for path in numbers if path[0] == ROW_GROUPS}
    groups = [_build_row_group(numbers, place, metadata.num_columns) for place in sorted(places)]
    if len(groups) != metadata.num_row_groups:
        raise pa.ArrowInvalid("its footer contradicts itself")
    if sum(chunk.packed for group in groups for chunk in group.chunks) > size:
        raise pa.ArrowInvalid("its columns are larger than the file")
    return groups


def _build_row_group(numbers: Numbers, place: int, columns: int) -> RowGroup:
    rows, size = (numbers.get((ROW_GROUPS, place, name), -1) for name in (ROWS, UNPACKED_BYTES))
    chunks = tuple(
        _build_chunk(numbers, (ROW_GROUPS, place, COLUMNS, MOST_FIELDS + column, METADATA))
        for column in range(columns)
    )
    if min([rows, size, *(min(chunk.start, chunk.packed, chunk.values) for chunk in chunks)]) < 0:
        raise pa.ArrowInvalid("its footer lacks the size or the place of a column")
    return RowGroup(rows, size, chunks)


def _build_chunk(numbers: Numbers, path: tuple[int, ...]) -> Chunk:
    start = numbers.get((*path, DATA_OFFSET), -1)
    dictionary = numbers.get((*path, DICTIONARY_OFFSET), 0)
    return Chunk(
        min(start, dictionary) if dictionary > 0 else start,
        numbers.get((*path, PACKED_OF_CHUNK), -1),
        numbers.get((*path, VALUES_OF_CHUNK), -1),
    )


def read_pages(file: BinaryIO, chunk: Chunk) -> Pages:
    """Return what the pages of a chunk take; raise ArrowInvalid for what is no page."""
    at, found, seen = chunk.start, Pages(), 0
    end = min(at + chunk.packed + PADDING, file.seek(0, os.SEEK_END))
    while seen < chunk.values:
        header, length = _read_header(file, at, end)
        kind, unpacked, packed = (header.get(n, -1) for n in (TYPE, UNPACKED_SIZE, PACKED_SIZE))
        values = header.get(VALUES[kind], -1) if kind in VALUES else 0
        if min(kind, unpacked, packed, values) < 0:
            raise pa.ArrowInvalid("a page's header lacks a size")
        found.unpacked += unpacked
        found.longest = max(found.longest, unpacked)
        found.values += values
        encoding = header.get(ENCODINGS.get(kind, ()))
        found.has_deltas |= encoding in (DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY)
        seen += values if kind in ENCODINGS else 0
        at += length + packed
    return found


def _read_header(file: BinaryIO, at: int, end: int) -> tuple[Numbers, int]:
    """Return the numbers of the page's header at a position, and its length in bytes."""
    size = FIRST_READ
    while True:
        file.seek(at)
        content = file.read(max(min(size, end - at), 0))
        if size >= LONGEST_HEADER or len(content) < size:
            return _read_numbers(content, INT_32)
        try:
            return _read_numbers(content, INT_32)
        except pa.ArrowInvalid:
            size *= 8


def _read_numbers(content: bytes, kept: int) -> tuple[Numbers, int]:
    reader = CompactReader(content, kept)
    try:
        reader.read_struct()
    except IndexError:
        raise pa.ArrowInvalid("a header is cut off") from None
    return reader.numbers, reader.at
