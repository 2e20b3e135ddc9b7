"""Cuts dump files into units of work, the same whatever the number of workers.

A unit is a stretch of one file that begins and ends at record boundaries. A plain file is cut where
it lies, a large packed one is unpacked once, and each stretch written to a file of its own.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise

import pyarrow as pa

from amazon_electra.beam_jobs.config import ReadingConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.labels.values import LABEL
from amazon_electra.beam_jobs.reading import detection, fields
from amazon_electra.beam_jobs.reading.compression import (
    Compression,
    PlainStream,
    detect_compression,
    list_zip_members,
)
from amazon_electra.beam_jobs.reading.excel import is_workbook
from amazon_electra.beam_jobs.reading.format import Layout, RowFormat
from amazon_electra.beam_jobs.reading.formats import find_format
from amazon_electra.beam_jobs.reading.lines import Item, Tally, WrongFile
from amazon_electra.beam_jobs.text.splits import KEY_FIELDS

TARGET_UNITS = 64  # 8 or more for each of 8 workers; dumps for more have units of the largest size
MIN_UNIT_BYTES, MAX_UNIT_BYTES = 4_000_000, 64_000_000  # bytes of a dump, uncompressed
COMPRESSION_RATIO = 3  # uncompressed bytes a packed one of review text stands for, at least
RECUT_ABOVE_UNITS = 4  # units in a packed file from which on it is re-cut
QUICK_ZSTD = pa.Codec("zstd", compression_level=1)


@dataclass(frozen=True)
class DumpFile:
    index: int  # in the order of names
    path: str
    member: str  # of a zip file
    source: str  # name without folders and extensions
    identity: storage.Identity  # before it was read
    compression: Compression
    layout: Layout

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self.identity[1]

    @property
    def plain_size(self) -> int:
        """Uncompressed bytes, estimated."""
        if self.compression == "utf16":
            return self.size // 2
        is_packed = self.compression or isinstance(find_format(self.layout.name), RowFormat)
        return self.size * (COMPRESSION_RATIO if is_packed else 1)

    @property
    def name(self) -> str:
        return f"{self.path}/{self.member}" if self.member else self.path

    @property
    def short_name(self) -> str:
        """The name without folders, by which rows of results join with the input."""
        return os.path.basename(self.path) + (f"/{self.member}" if self.member else "")

    @property
    def number(self) -> str:
        """The index in names of units and their files, which sort in the order of the dump."""
        return f"{self.index:07d}"


@dataclass(frozen=True)
class Unit:
    file: DumpFile
    piece: int  # in the order of the file
    path: str  # the dump file or a piece of it, re-cut
    compression: Compression
    start: int  # bytes; row groups of Parquet
    stop: int | None  # None for the end of `path`
    plain_size: int  # bytes, estimated

    @property
    def name(self) -> str:
        """The unit's name, which sorts in the order of the dump."""
        return f"{self.file.number}-{self.piece:05d}"


@dataclass(frozen=True)
class PreparedUnit:
    """What preparing a unit left and counted; its file of JSON marks the unit as done."""

    unit: str  # the unit's name
    prepared: int  # reviews that are left
    file: str = ""
    short_name: str = ""  # of the file
    source: str = ""
    read: int = 0
    lines: int = 0
    bytes: int = 0  # uncompressed
    dropped: dict[str, int] = field(default_factory=dict)  # by the reason
    notes: dict[str, int] = field(default_factory=dict)
    ratings: dict[str, int] = field(default_factory=dict)  # stars.encode_ratings
    labels: dict[str, dict[str, int]] = field(default_factory=dict)  # values.keep_frequent
    held_out_runs: int = 0  # rows of `.heldout`


@dataclass(frozen=True, slots=True)
class UnitSize:
    """What every step of a corpus job holds of each prepared unit."""

    unit: str
    prepared: int
    held_out_runs: int
    lines_before: int  # of its file
    rows_before: int = 0  # records of its file


def list_dump_files(
    config: ReadingConfig, input: Sequence[str], labels: Sequence[str] = ()
) -> list[DumpFile]:
    """Return the files of a dump by name; UserError where none has the column of a label."""
    overrides = fields.parse_column_overrides(config.columns)
    overrides |= {f"{LABEL}{column}": column for column in labels}
    files: list[DumpFile] = []
    layouts: dict[Layout, Layout] = {}  # those of most files are equal, and kept once
    found = storage.list_files(input)
    inspect = partial(_inspect_file, config, overrides, found)
    for file in itertools.chain.from_iterable(storage.map_paths(inspect, found)):
        layout = layouts.setdefault(file.layout, file.layout)
        files.append(replace(file, index=len(files), layout=layout))
    for column in labels:
        is_there = any(f"{LABEL}{column}" in dict(layout.mapping) for layout in layouts)
        why = f"no such column; {files[0].name} has {fields.list_columns(files[0].layout)}"
        require(is_there, why, "labels", column)
    return files


def _inspect_file(
    config: ReadingConfig,
    overrides: dict[str, str],
    known: dict[str, storage.Identity | None],
    path: str,
) -> list[DumpFile]:
    """Detect compression and layout of a file, or of each member of a zip, from its content."""
    files: list[DumpFile] = []
    defaults = Layout(
        "json_lines",
        encoding=config.encoding,
        max_record_bytes=config.max_record_bytes,
        max_expansion=config.max_expansion,
        sheet=config.sheet or "",
        records=config.records or "",
    )
    try:
        identity = known[path] or storage.describe_identity(path)
        first = storage.read_first_bytes(path, min(identity[1], detection.HEAD_BYTES))
        compression, name = detect_compression(first), config.format
        if compression == "zip":
            with storage.open_bytes(path) as file:
                compression, name = ("", "excel") if is_workbook(file) else (compression, name)
        for member in list_zip_members(path) if compression == "zip" else [""]:
            layout = detection.detect_layout(
                path, first, compression, member, name, overrides, defaults
            )
            shown = (member or path).encode(errors="surrogateescape").decode(errors="replace")
            source = os.path.basename(shown.rstrip("/")).split(".")[0] or "dump"
            files.append(DumpFile(0, path, member, source, identity, compression, layout))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    return files


def check_split_field(split_by: str, files: Sequence[DumpFile]) -> None:
    """Raise UserError where no file has the column that the split is by."""
    field = KEY_FIELDS.get(split_by)
    has_field = not field or any(field in dict(file.layout.mapping) for file in files)
    why = f"{files[0].name} has {fields.list_columns(files[0].layout)}; name its column"
    require(has_field, f"{why} with `--columns {field}=NAME`", "split_by", split_by)


def name_column(files: Iterable[DumpFile], field: str) -> str:
    """Return the column of a field in the first file that has one, for a message."""
    named = ((file.name, dict(file.layout.mapping).get(field)) for file in files)
    return next((f"{name}: {column}" for name, column in named if column), "the dump")


def choose_unit_bytes(total: int) -> int:
    """Return the uncompressed bytes of a unit of a dump that has so many."""
    return min(max(total // TARGET_UNITS, MIN_UNIT_BYTES), MAX_UNIT_BYTES)


def is_cut_anew(file: DumpFile, size: int) -> bool:
    """Return whether a file is unpacked by one worker, into pieces for all."""
    return bool(file.compression) and file.plain_size > RECUT_ABOVE_UNITS * size


def estimate_units(files: Sequence[DumpFile], size: int) -> int:
    """Estimate how many units of so many bytes files give."""
    counts = (max(1, round(file.plain_size / size)) for file in files)
    is_cut = (not file.compression or is_cut_anew(file, size) for file in files)
    return sum(n if is_one_cut else 1 for n, is_one_cut in zip(counts, is_cut, strict=True))


def cut_file(file: DumpFile, size: int, folder: str) -> list[Unit]:
    """Cut a file into units of about `size` bytes, once; unpacked pieces go to `folder`."""
    marker = storage.join_path(folder, f"{file.number}.json")
    if not storage.exists(marker):
        units = [asdict(unit) for unit in _cut_by_layout(file, size, folder)]
        storage.check_unchanged(file.identity)
        storage.write_json(marker, [{n: v for n, v in u.items() if n != "file"} for u in units])
    return [Unit(file=file, **fields) for fields in json.loads(storage.read_bytes(marker))]


def _cut_by_layout(file: DumpFile, size: int, folder: str) -> Iterator[Unit]:
    whole = Unit(file, 0, file.path, file.compression, 0, None, file.plain_size)
    format, expansion = find_format(file.layout.name), file.layout.max_expansion
    if isinstance(format, RowFormat):
        with storage.open_bytes(whole.path) as rows:
            for number, (start, stop, width) in enumerate(format.cut(rows, size)):
                yield replace(whole, piece=number, start=start, stop=stop, plain_size=width)
    elif is_cut_anew(file, size):  # pieces are packed again in a bucket
        compression: Compression = "zst" if storage.is_remote(folder) else ""
        with PlainStream(whole.path, whole.compression, file.member, expansion) as stream:
            for piece, stretch in enumerate(_split_stream(stream, size, file.layout)):
                path = storage.join_path(folder, f"{file.number}-{piece:05d}.piece")
                storage.write_bytes(path, QUICK_ZSTD.compress(stretch) if compression else stretch)
                yield Unit(file, piece, path, compression, 0, None, len(stretch))
    elif file.compression or file.size < size * 3 // 2:
        yield whole
    else:
        cuts = [0]
        with PlainStream(whole.path) as stream:
            while cuts[-1] + size * 3 // 2 < file.size:
                boundary = _find_boundary(stream, cuts[-1], size, file.layout)
                if boundary is None:
                    break
                cuts.append(boundary)
        for piece, (start, end) in enumerate(pairwise([*cuts, file.size])):
            last = None if end == file.size else end
            yield replace(whole, piece=piece, start=start, stop=last, plain_size=end - start)


def _find_boundary(stream: PlainStream, start: int, size: int, detected: Layout) -> int | None:
    """Return the first boundary at or after `start` + `size`, or None if the file ends before."""
    least, format = size, find_format(detected.name)
    if format.is_stateless(detected):
        # two bytes before, to see a line end or blank line just there
        start, least = start + size - 2, 2
    stream.seek(start)
    stretch = _read_at_least(stream, least + 1)
    while len(stretch) > least:
        if (at := format.find_boundary(stretch, least, detected)) >= 0:
            return start + at
        if not (more := _read_at_least(stream, len(stretch))):
            break
        stretch += more
    return None


def _split_stream(stream: PlainStream, size: int, detected: Layout) -> Iterator[bytes]:
    """Yield a stream in stretches of `size` bytes or a little more."""
    rest, first, format = b"", True, find_format(detected.name)
    while True:
        wanted = size + 1 - len(rest) if len(rest) <= size else len(rest)
        read = _read_at_least(stream, wanted)
        ended, rest = not read, rest + read
        del read  # which is large
        while len(rest) > size and (at := format.find_boundary(rest, size, detected)) >= 0:
            stretch, rest, first = rest[:at], rest[at:], False
            yield stretch
            del stretch
        if ended:
            if rest or first:
                yield rest
            return


def _read_at_least(stream: PlainStream, size: int) -> bytes:
    """Return `size` bytes or a little more; none only if the stream has ended."""
    blocks: list[bytes] = []
    while size > 0 and (block := stream.read()):
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def read_records(unit: Unit, tally: Tally) -> Iterator[Item]:
    """Yield all records and rejects of a unit, in order; UserError if the file has changed."""
    file, layout = unit.file, unit.file.layout
    format, is_own = find_format(layout.name), unit.path == file.path
    if isinstance(format, RowFormat):
        with storage.open_bytes(unit.path) as rows:
            items = format.read_rows(rows, file.name, layout, tally, unit.start, unit.stop)
            yield from fields.finish_records(items, layout, (), tally)
        tally.bytes = unit.plain_size
    else:
        limit = layout.max_expansion if is_own else 0
        member = file.member if is_own else ""
        with PlainStream(unit.path, unit.compression, member, limit) as stream:
            if not unit.compression:
                stream.seek(unit.start, unit.stop)
            try:
                yield from detection.read_records(stream, layout, tally, unit.piece == 0)
            except WrongFile as error:
                raise UserError(f"{file.name} {error}") from None
            tally.bytes = stream.delivered
    if is_own:
        storage.check_unchanged(file.identity)
