"""The counts a job writes when it has finished a unit: their files tell which units are done."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from beam_jobs.core import storage


def list_finished(folder: str) -> list[str]:
    """Return the names of the count files of finished units, in the order of the dump."""
    return [name for name in storage.list_names(folder) if name.endswith(".json")]


def read_counts(folder: str, name: str) -> dict[str, Any]:
    return json.loads(storage.read_bytes(storage.join_path(folder, name)))


def read_all_counts(folder: str) -> list[dict[str, Any]]:
    """Return the counts of finished units, in the order of the dump."""
    return [read_counts(folder, name) for name in list_finished(folder)]


def sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return name → sum over the units, in the order of the names."""
    sums: dict[str, int] = {}
    for unit in counts:
        for name, n in unit.items():
            sums[name] = sums.get(name, 0) + n
    return dict(sorted(sums.items()))
