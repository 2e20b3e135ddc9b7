"""The counts a job writes when it is through with a unit of the dump: by their files it knows what is done."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from beam_jobs import storage


def names(folder: str) -> list[str]:
    """Of the files of all units that are done, in the order of the dump."""
    return [name for name in storage.names_in(folder) if name.endswith(".json")]


def read(folder: str, name: str) -> dict[str, Any]:
    return json.loads(storage.read_bytes(storage.join(folder, name)))


def read_all(folder: str) -> list[dict[str, Any]]:
    """Of the units that are done, in the order of the dump."""
    return [read(folder, name) for name in names(folder)]


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Name → sum, in the order of the names."""
    sums: dict[str, int] = {}
    for unit in counts:
        for name, n in unit.items():
            sums[name] = sums.get(name, 0) + n
    return dict(sorted(sums.items()))
