"""Parquet files: others' are read within limits, ours are either whole or not there.

A few hundred bytes can stand for gigabytes: pages are packed, and a text that stands in a
dictionary once may occur in every row. So the sizes in the metadata are looked at before a row
group is read, and texts stay dictionaries until their lengths have been added up. The metadata's
sizes are trusted: Arrow allocates what a page says.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.limits import Limits

KEY = b"amazon_electra"
BATCH_ROWS = 4096
SLICE_BYTES = 1 << 26
"""Of strings that become Python objects at once."""
ROW_BYTES, ITEM_BYTES = 50, 8
"""What a row, and an item of a list, takes besides its texts."""
STRINGS = {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}
"""Types of texts and bytes of any length."""


class BoundedParquet:
    """A Parquet file whose columns, by name and with all that is in them, are read within limits.

    Raises UserError for a file that expands too far, and Arrow's errors for one that is broken.
    """

    def __init__(
        self, file: BinaryIO, name: str, limits: Limits, columns: Sequence[str] | None = None
    ) -> None:
        self._file, self._name, self._limits, self._columns = file, name, limits, columns
        self.metadata = pq.read_metadata(file)
        self._leaves = {
            i: leaf
            for i, leaf in enumerate(list_leaves(self.metadata))
            if columns is None or any(f"{leaf.path}.".startswith(f"{c}.") for c in columns)
        }
        self._size = file.seek(0, os.SEEK_END)
        self._expanded = 0

    def count_rows(self, group: int) -> int:
        """Return how many rows the metadata gives a row group that is to be read next."""
        rows: int = self.metadata.row_group(group).num_rows
        self._expand(rows * ROW_BYTES)
        return rows

    def read_slices(self, group: int) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield rows of a row group with the bytes that the strings of each take, int64.

        Rows longer than the limit of a record are for the caller to leave out; the others of a
        slice take SLICE_BYTES at most.
        """
        found = self.metadata.row_group(group)
        self._limits.check_expansion(self._name, self._size, found.total_byte_size)
        for i, leaf in self._leaves.items():
            if leaf.max_repetition_level or leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
                values = found.column(i).num_values  # all items of a row are decoded at once
                self._limits.check_expansion(
                    self._name, self._size, values * (ITEM_BYTES + max(leaf.length, 0))
                )
        done = 0
        try:
            for batch in self._read_batches(group, as_dictionaries=True):
                yield from self._slice_batch(batch)
                done += batch.num_rows
        except OSError:  # Arrow makes no dictionary of texts that are written as differences
            for batch in self._read_batches(group, as_dictionaries=False):
                if len(new := batch.slice(min(done, len(batch)))):
                    yield from self._slice_batch(new)
                done = max(done - len(batch), 0)

    def _read_batches(self, group: int, as_dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """Read rows of a row group, few at once where a text may be as long as all of it."""
        strings = [leaf.path for leaf in self._leaves.values() if is_string_column(leaf)]
        parquet = pq.ParquetFile(
            self._file, read_dictionary=strings * as_dictionaries, metadata=self.metadata
        )
        rows = BATCH_ROWS
        if strings and (not as_dictionaries or has_extension(pa.struct(parquet.schema_arrow))):
            longest = max(self.metadata.row_group(group).total_byte_size, 1)
            rows = min(max(SLICE_BYTES // longest, 1), BATCH_ROWS)
        return parquet.iter_batches(rows, row_groups=[group], columns=self._columns)

    def _slice_batch(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        lengths = sum(map(measure_strings, batch.columns), np.zeros(batch.num_rows, np.int64))
        self._expand(int(lengths.sum()))
        fitting = np.where(lengths > self._limits.max_record_bytes, 0, lengths)
        slices = np.cumsum(fitting) // SLICE_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(slices)) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(cuts):
            yield batch.slice(start, stop - start), lengths[start:stop]

    def _expand(self, size: int) -> None:
        self._expanded += size
        self._limits.check_expansion(self._name, self._size, self._expanded)


def read_rows(
    file: BinaryIO, name: str, limits: Limits, strings_only: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of which none may be missing; `strings_only` leaves numbers out.

    Raises UserError for a file that is broken, a record that is too long, and a file that expands
    too far.
    """
    try:
        columns = None
        if strings_only:
            leaves = list_leaves(pq.read_metadata(file))
            columns = [leaf.path for leaf in leaves if is_string_column(leaf)]
        source = BoundedParquet(file, name, limits, columns)
        for group in range(source.metadata.num_row_groups if columns != [] else 0):
            source.count_rows(group)
            for rows, lengths in source.read_slices(group):
                if lengths.max() > limits.max_record_bytes:
                    raise UserError(
                        f"{name} has a record of more than {limits.max_record_bytes:,} bytes"
                    )
                yield from rows.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        storage.raise_storage_error(error, name)
        raise UserError(f"{name}: damaged or cut off ({error}); fetch it again") from error


def list_leaves(metadata: pq.FileMetaData) -> list[pq.ColumnSchema]:
    """Return the columns as Parquet has them: of nested ones, each part."""
    return [metadata.schema.column(i) for i in range(len(metadata.schema))]


def is_string_column(leaf: pq.ColumnSchema) -> bool:
    """Return whether a column holds texts or bytes of any length."""
    return bool(leaf.physical_type == "BYTE_ARRAY")


def has_extension(kind: pa.DataType) -> bool:
    """Return whether a type is, or has within, one of Arrow's extensions such as JSON, whose texts
    come as no dictionary.
    """
    return isinstance(kind, pa.BaseExtensionType) or (
        pa.types.is_nested(kind)
        and any(has_extension(kind.field(i).type) for i in range(kind.num_fields))
    )


def measure_strings(array: pa.Array) -> np.ndarray:
    """Return the bytes that the strings of each value take, and the items of lists, int64; no
    string is made.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return measure_strings(array.storage)
    if pa.types.is_dictionary(kind):
        lengths = pa.array(measure_strings(array.dictionary)).take(array.indices)
        return lengths.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    if array.type in STRINGS:
        lengths = pc.binary_length(array).fill_null(0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            lengths += measure_strings(array.field(i))
    elif pa.types.is_nested(kind):
        if pa.types.is_map(kind):
            pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
            array = pa.ListArray.from_arrays(array.offsets, pairs)
        items = ITEM_BYTES + measure_strings(array.flatten())
        np.add.at(lengths, pc.list_parent_indices(array).to_numpy(), items)
    return lengths


def write_tables(
    path: str | os.PathLike,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    footer: Callable[[], dict[str, Any]] = dict,
) -> int:
    """Write tables, one row group each, and `footer()`, called last, as JSON under the key
    `amazon_electra`; return the number of rows.

    Nothing but the rows and the footer decides the bytes.
    """
    rows = 0
    with (
        storage.atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            compression_level=3,
            store_schema=True,
            use_dictionary=[
                f.name for f in schema if pa.types.is_dictionary(f.type)
            ],  # others: read in a third the time
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(schema), row_group_size=max(table.num_rows, 1))
            rows += table.num_rows
        writer.add_key_value_metadata({KEY: json.dumps(footer(), sort_keys=True).encode()})
    return rows


def read_footer(path: str | os.PathLike) -> dict[str, Any]:
    """Return what `write_tables` put into the footer; {} for a Parquet file that is not ours."""
    with storage.open_bytes(str(path)) as file:
        return json.loads((pq.read_metadata(file).metadata or {}).get(KEY, b"{}"))
