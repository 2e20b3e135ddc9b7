"""Dump files → units of work: the same units whatever the number of workers.

A unit is a range of bytes of one file that begins and ends at record boundaries, so a worker that has the unit needs
nothing else. How large depends on the size of the dump alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from beam_jobs import storage
from beam_jobs.compression import Compression, compression_of, open_plain
from beam_jobs.formats import detection

UNITS_AIMED_AT = 64  # 8 or more for each of 8 workers; more workers have dumps with more than 64 × the largest unit
SMALLEST_UNIT, LARGEST_UNIT = 4_000_000, 64_000_000  # bytes of a dump, uncompressed
GZ_RATIO = 3  # uncompressed bytes a compressed one of review text stands for, at least


@dataclass(frozen=True)
class DumpFile:
    path: str
    source: str  # name without folders and extensions
    size: int  # bytes on the disk
    compression: Compression
    format: detection.Format
    mapping: dict[str, str] = field(hash=False)

    @property
    def plain_size(self) -> int:
        """Bytes when uncompressed, estimated."""
        return self.size * (GZ_RATIO if self.compression else 1)


@dataclass(frozen=True)
class Unit:
    index: int
    file: DumpFile
    start: int  # bytes
    stop: int | None  # bytes, None for the end of the file
    plain_size: int


def look_at(path: str, format_name: str | None, overrides: dict[str, str]) -> DumpFile:
    """What a file holds, by its content."""
    head = storage_head(path)
    compression = compression_of(head)
    found = detection.detect(path, compression, format_name)
    mapping = detection.mapping(path, compression, found, overrides)
    return DumpFile(path, source_name(path), storage.size_of(path), compression, found, mapping)


def storage_head(path: str) -> bytes:
    with storage.open_bytes(path) as file:
        return file.read(detection.HEAD_BYTES)


def source_name(path: str) -> str:
    return os.path.basename(path.rstrip("/")).split(".")[0] or "dump"


def unit_bytes(files: list[DumpFile]) -> int:
    total = sum(file.plain_size for file in files)
    return min(max(total // UNITS_AIMED_AT, SMALLEST_UNIT), LARGEST_UNIT)


def plan(files: list[DumpFile]) -> list[Unit]:
    """All units in the order of the files."""
    size = unit_bytes(files)
    units: list[Unit] = []
    for file in files:
        cuts = [0] if file.compression else boundaries(file, size)
        for start, stop in zip(cuts, [*cuts[1:], None], strict=True):
            width = (stop or file.plain_size) - start
            units.append(Unit(len(units), file, start, stop, width))
    return units


def boundaries(file: DumpFile, size: int) -> list[int]:
    """Offsets of records about `size` bytes apart, the first 0."""
    cuts = [0]
    with open_plain(file.path) as stream:
        while (wanted := cuts[-1] + size) < file.size - size // 2:
            stream.seek(wanted - 1)
            skipped = 0
            while block := stream.readline(1 << 20):
                skipped += len(block)
                if block.endswith(b"\n"):
                    break
            if wanted - 1 + skipped >= file.size:
                break
            cuts.append(wanted - 1 + skipped)
    return cuts


@contextmanager
def open_unit(unit: Unit) -> Iterator[BinaryIO]:
    """The uncompressed bytes of a unit and nothing beyond them."""
    with open_plain(unit.file.path, unit.file.compression) as stream:
        if unit.file.compression:
            yield stream
        else:
            stream.seek(unit.start)
            yield stream if unit.stop is None else cast(BinaryIO, Span(stream, unit.stop - unit.start))


class Span:
    """The next `left` bytes of a stream."""

    def __init__(self, stream: BinaryIO, left: int) -> None:
        self._stream, self._left = stream, left

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(block)
        return block
