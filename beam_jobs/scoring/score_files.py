"""The scores of a unit as a Parquet file, and the totals of all units."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.core import storage
from beam_jobs.corpus.plan import Folders
from beam_jobs.corpus.result import read_finished, sum_counts
from beam_jobs.corpus.write import write_rejects
from beam_jobs.reading.work_units import PreparedUnit, check_damage

SCHEMA = pa.schema(
    [
        pa.field("review_id", pa.binary(16)),
        pa.field("stars", pa.int8()),
        pa.field("label", pa.string()),
        pa.field("probability", pa.float32()),
        pa.field("probabilities", pa.list_(pa.float32())),
        pa.field("model_version", pa.string()),
    ]
)


@dataclass(frozen=True)
class ScoredUnit:
    """The probabilities of a unit's reviews, in their order."""

    unit: str
    labels: list[str]
    probabilities: np.ndarray
    """Float32 [reviews, classes]."""


def write_scores(scored: ScoredUnit, folders: Folders, model_version: str) -> None:
    """Write the scores of a unit as Parquet, then how many they are."""
    unit, probabilities = scored.unit, scored.probabilities
    path = storage.join_path(folders.prepared, f"{unit}.arrow")
    with storage.open_bytes(path) as stream:
        reviews = pa.ipc.open_file(stream).read_all()
    best = probabilities.argmax(1) if len(probabilities) else np.zeros(0, dtype=np.int64)
    columns = [
        reviews["review_id"],
        reviews["stars"],
        pa.array([scored.labels[label] for label in best], pa.string()),
        pa.array(probabilities[np.arange(len(best)), best], pa.float32()),
        pa.array(list(probabilities), pa.list_(pa.float32())),
        pa.array([model_version] * len(best), pa.string()),
    ]
    output = storage.join_path(folders.output, f"scores-{unit}.parquet")
    with storage.atomic_path(output) as temporary:
        pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), temporary, compression="zstd")
    storage.write_bytes(
        storage.join_path(folders.written, f"{unit}.json"),
        json.dumps({"scored": len(best)}).encode(),
    )


def finish_scores(folders: Folders, max_damaged_files: int = 0) -> dict[str, Any]:
    """Write the rejects, remove the work folder and return the totals.

    Reviews read = scored + dropped is asserted. Raises UserError for more damaged files than that.
    """
    units, lines = read_finished(folders.prepared, PreparedUnit), Counter[str]()
    check_damage(units, max_damaged_files)
    for unit in units:
        write_rejects(unit.unit, lines[unit.file], folders)
        lines[unit.file] += unit.lines
    dropped = sum_counts(unit.dropped for unit in units)
    scored = sum(unit["scored"] for unit in read_finished(folders.written, dict[str, int]))
    totals = {"read": sum(unit.read for unit in units), "scored": scored}
    assert totals["read"] == totals["scored"] + sum(dropped.values()), (
        f"reviews lost: {totals}, dropped {dropped}"
    )
    storage.remove_path(folders.work)
    return {**totals, "dropped": dropped, "units": len(units)}
