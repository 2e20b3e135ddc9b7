"""Reads Parquet files within limits: a few hundred bytes can stand for gigabytes.

Pages are packed, a text that stands in a dictionary once may occur in every row, and a footer may
say anything. So the headers of the pages are added up before Arrow unpacks them, and texts stay
dictionaries until their lengths have been looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs.job.errors import UserError
from beam_jobs.job.limits import Limits
from beam_jobs.job.parquet.pages import Pages, RowGroup, read_pages, read_row_groups
from beam_jobs.job.storage import raise_storage_error

BATCH_ROWS = 4096
SLICE_BYTES = 1 << 26
"""Of strings that become Python objects at once."""
ROW_BYTES, ITEM_BYTES = 50, 8
"""What a row, and an item of a list, takes besides its texts."""


class BoundedParquet:
    """A Parquet file whose columns, by name and with all that is in them, are read within limits.

    Raises UserError for a file that expands too far, and Arrow's errors for one that is broken.
    """

    def __init__(
        self, file: BinaryIO, name: str, limits: Limits, columns: Sequence[str] | None = None
    ) -> None:
        self._file, self._name, self._limits, self._columns = file, name, limits, columns
        self._metadata = pq.read_metadata(file)
        leaves = _list_leaves(self._metadata)
        self._leaves = {
            i: leaf
            for i, leaf in enumerate(leaves)
            if columns is None or _is_among(leaf.path, columns)
        }
        self._packed = self._expanded = 0
        self.groups: list[RowGroup] = read_row_groups(file, self._metadata)
        self._open_without(frozenset())

    def count_rows(self, group: int) -> int:
        """Return how many rows the footer gives a row group that is to be read next."""
        found = self.groups[group]
        self._packed += sum(chunk.packed for chunk in found.chunks)
        self._expanded += found.rows * ROW_BYTES
        self._check_expansion(self._expanded)
        return found.rows

    def read_slices(self, group: int) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield rows of a row group with the bytes that the strings of each take, int64.

        Rows longer than the limit of a record are for the caller to leave out; the others of a
        slice take SLICE_BYTES at most.
        """
        rows = self._prepare_group(group)
        for batch in self._parquet.iter_batches(rows, row_groups=[group], columns=self._columns):
            lengths = sum_string_lengths(batch)
            self._expanded += int(lengths.sum())
            self._check_expansion(self._expanded)
            fitting = np.where(lengths > self._limits.max_record_bytes, 0, lengths)
            for start, stop in _find_runs(np.cumsum(fitting) // SLICE_BYTES):
                yield batch.slice(start, stop - start), lengths[start:stop]

    def _open_without(self, plain: frozenset[int]) -> None:
        """Open the file so that the strings of all columns but these are read as dictionaries."""
        strings = {i: leaf for i, leaf in self._leaves.items() if _is_string_column(leaf)}
        self._parquet = pq.ParquetFile(
            self._file,
            read_dictionary=[leaf.path for i, leaf in strings.items() if i not in plain],
            metadata=self._metadata,
        )
        kinds = list(_list_leaf_types(self._parquet.schema_arrow))
        assert len(kinds) == len(self._metadata.schema)
        self._excluded = plain
        self._plain = {i for i in strings if not pa.types.is_dictionary(kinds[i])}

    def _prepare_group(self, group: int) -> int:
        """Check what a row group takes; return how many of its rows may be decoded at once.

        A text that is no dictionary's may be as long as a page, in each of the rows.
        """
        chunks = self.groups[group].chunks
        pages = {i: read_pages(self._file, chunks[i]) for i in self._leaves}
        plain = frozenset(i for i in pages if pages[i].has_deltas)
        if plain != self._excluded:
            self._open_without(plain)
        self._check_expansion(sum(self._measure_column(i, pages[i]) for i in pages))
        longest = max((pages[i].longest for i in self._plain), default=0)
        return min(max(SLICE_BYTES // max(longest, 1), 1), BATCH_ROWS)

    def _measure_column(self, number: int, pages: Pages) -> int:
        """Return the bytes of pages, and of values where a few bytes of a page may stand for many.

        Of a list, all items of a row are decoded at once.
        """
        leaf, item_bytes = self._leaves[number], 0
        if leaf.max_repetition_level:
            item_bytes = ITEM_BYTES + (pages.longest if number in self._plain else 0)
        if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
            item_bytes += leaf.length
        return pages.unpacked + pages.values * item_bytes

    def _check_expansion(self, size: int) -> None:
        self._limits.check_expansion(self._name, self._packed, size)


def read_rows(
    file: BinaryIO, name: str, limits: Limits, strings_only: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of which none may be missing; `strings_only` leaves numbers out.

    Raises UserError for a file that is broken, a record that is too long, and a file that expands
    too far.
    """
    try:
        columns = _list_string_columns(file) if strings_only else None
        source = BoundedParquet(file, name, limits, columns)
        for group in range(len(source.groups) if columns != [] else 0):
            source.count_rows(group)
            for rows, lengths in source.read_slices(group):
                if lengths.max() > limits.max_record_bytes:
                    raise UserError(
                        f"{name} has a record of more than {limits.max_record_bytes:,} bytes"
                    )
                yield from rows.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise_storage_error(error, name)
        raise UserError(f"{name}: damaged or cut off ({error}); fetch it again") from error


def _list_string_columns(file: BinaryIO) -> list[str]:
    return [leaf.path for leaf in _list_leaves(pq.read_metadata(file)) if _is_string_column(leaf)]


def _list_leaves(metadata: pq.FileMetaData) -> list[pq.ColumnSchema]:
    return [metadata.schema.column(i) for i in range(len(metadata.schema))]


def sum_string_lengths(batch: pa.RecordBatch) -> np.ndarray:
    """Return the bytes of all strings of each row, int64, without making them."""
    lengths = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        lengths += _measure_strings(column)
    return lengths


def _measure_strings(array: pa.Array) -> np.ndarray:
    """Return the bytes that the strings of each value take, and the items of lists."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _measure_strings(array.storage)
    if pa.types.is_dictionary(kind):
        lengths = pa.array(_measure_strings(array.dictionary)).take(array.indices)
        return lengths.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    if is_string(array.type):
        lengths = pc.binary_length(array).fill_null(0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            lengths += _measure_strings(array.field(i))
    elif pa.types.is_nested(kind):
        if pa.types.is_map(kind):
            pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
            array = pa.ListArray.from_arrays(array.offsets, pairs)
        items = ITEM_BYTES + _measure_strings(array.flatten())
        np.add.at(lengths, pc.list_parent_indices(array).to_numpy(), items)
    return lengths


def is_string(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts or bytes of any length."""
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _is_string_column(leaf: pq.ColumnSchema) -> bool:
    return bool(leaf.physical_type == "BYTE_ARRAY")


def _is_among(path: str, columns: Sequence[str]) -> bool:
    """Return whether pyarrow reads a column if these are asked for, by name or part of a path."""
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def _list_leaf_types(fields: Iterable[pa.Field]) -> Iterator[pa.DataType]:
    """Yield the types of the columns of a file, whose order is that of the fields."""
    for field in fields:
        kind = field.type
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_nested(kind):
            yield from _list_leaf_types(kind.field(i) for i in range(kind.num_fields))
        else:
            yield kind


def _find_runs(keys: np.ndarray) -> list[tuple[int, int]]:
    """Return (start, stop) of each run of equal keys."""
    cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    return [(a, b) for a, b in pairwise(cuts) if a < b]
