"""The ids of records, by which scores and doubtful labels join with the input."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.reading import detection, fields
from amazon_electra.beam_jobs.reading.format import RowFormat
from amazon_electra.beam_jobs.reading.formats import find_format
from amazon_electra.beam_jobs.reading.work_units import DumpFile

ID_NAMES = ("id", "uuid", "guid", "recordid", "rowid")  # without separators and `review`
ID = "id"  # key of that column in a layout's mapping, beside the fields of a review


def list_columns(file: DumpFile) -> list[str]:
    """Return the columns of a file, as far as its beginning shows them."""
    layout, format = file.layout, find_format(file.layout.name)
    if isinstance(format, RowFormat):
        with storage.open_bytes(file.path) as opened:
            record = format.read_first(opened, file.path, layout)[0]
        return [*record, *detection.list_nested_names(record)]
    read = [*sorted(layout.read_columns), *layout.unused]
    return format.list_columns(layout, []) or read


def add_id_column(file: DumpFile, given: str | None) -> DumpFile:
    """Return a file that is read with the column of its ids; UserError for one it does not have."""
    layout, columns = file.layout, list_columns(file)
    is_listed = (
        isinstance(find_format(layout.name), RowFormat)
        or len(layout.unused) < fields.MAX_LISTED_COLUMNS
    )
    is_there = not (given and columns and is_listed) or given in columns
    require(is_there, f"{file.name} has {', '.join(sorted(columns))}", "id", given)
    start = fields.name_list(dict(layout.mapping).get("text", ""))
    inside = [name for name in reversed(columns) if fields.name_list(name) == start]
    named = {fields.strip_column_name(name.removeprefix(start)): name for name in inside}
    column = given or next((named[name] for name in ID_NAMES if name in named), "")
    mapping = (*layout.mapping, (ID, column)) if column else layout.mapping
    fields.check_lists((name for _, name in mapping), file.name)
    unused = tuple(name for name in layout.unused if name != column)
    return replace(file, layout=replace(layout, mapping=mapping, unused=unused))


def format_id(value: Any) -> str | None:
    """Return an id as text: `{"$oid": "5f"}` of MongoDB as 5f, other nested values as JSON."""
    value = fields.unwrap(value)
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, bytes):
        value = value.hex()
    return None if value is None or value == "" else str(value).encode(errors="replace").decode()


def warn_of_ids(counts: Mapping[str, int], column: str) -> str:
    """Return what is wrong with ids that occur so often: rows join only where each has its own."""
    rows = sum(counts.values())
    if len(counts) == rows:
        return ""
    example = min(counts, key=lambda one: (-counts[one], one))
    return (
        f"{column}: {len(counts):,} different ids in {rows:,} rows: {example} occurs "
        f"{counts[example]:,} times; join by row, or give another column with `id`"
    )
