"""The result of a corpus job, from the counts of its units: every review read is accounted for."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.corpus import write
from amazon_electra.beam_jobs.corpus.plan import CorpusPlan
from amazon_electra.beam_jobs.corpus.prepare import NO_KEY
from amazon_electra.beam_jobs.corpus.write import WrittenUnit, sum_counts
from amazon_electra.beam_jobs.engine.units import check_failed
from amazon_electra.beam_jobs.labels import values
from amazon_electra.beam_jobs.labels.classes import TRAINED_SPLITS, choose_classes, warn_of_label
from amazon_electra.beam_jobs.labels.stars import decode_ratings
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit

T = TypeVar("T")
MIN_WITHHELD = 0.05  # of the reviews to train on: when more are withheld, it is said
ON_TEN = (
    "stars are on the scale 0-10: 0–3 negative, 4–6 neither, 7–10 positive; answers to a question "
    "for NPS are read by `--stars-scale nps`"
)


def list_finished(folder: str) -> list[str]:
    """Return the names of the count files of finished units, in the order of the dump."""
    return [name for name in storage.list_names(folder) if name.endswith(".json")]


def read_finished(folder: str, kind: Callable[..., T]) -> list[T]:
    """Return the counts of finished units, each of a kind, in the order of the dump."""
    paths = [storage.join_path(folder, name) for name in list_finished(folder)]
    return [kind(**json.loads(found)) for found in storage.map_paths(storage.read_bytes, paths)]


def write_totals(
    written: list[WrittenUnit], prepared: list[PreparedUnit], plan: CorpusPlan
) -> dict[str, Any]:
    """Write corpus.json, the mark of a finished corpus: a step that an engine may repeat."""
    result = summarize_corpus(sorted(written, key=lambda unit: unit.unit), prepared, plan)
    storage.write_json(storage.join_path(plan.folders.output, "corpus.json"), result)
    return result


def finish_corpus(plan: CorpusPlan, measure: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
    """Add what `measure` returns to corpus.json; return its content. Removes the work folder."""
    path = storage.join_path(plan.folders.output, "corpus.json")
    result = json.loads(storage.read_bytes(path)) | measure()
    storage.write_json(path, result)
    storage.remove_path(plan.folders.work)
    return result


def check_prepared(units: list[PreparedUnit], failed: str) -> list[PreparedUnit]:
    """Return all prepared units in their order; raise JobFailed if others failed."""
    check_failed(failed)
    return sorted(units, key=lambda unit: unit.unit)


def summarize_corpus(
    written: Sequence[WrittenUnit], prepared: Sequence[PreparedUnit], plan: CorpusPlan
) -> dict[str, Any]:
    """Return the totals of all units, which are in their order. Raises UserError if no review could
    be used, JobFailed if a unit failed. Reviews read = kept + dropped is asserted.
    """
    check_failed(plan.folders.failed)
    assert len(prepared) == len(written), f"{len(prepared)} units prepared, {len(written)} written"
    dropped = sum_counts([*(u.dropped for u in prepared), *(u.dropped for u in written)])
    dropped = {reason: n for reason, n in dropped.items() if n}
    read, kept = sum(unit.read for unit in prepared), sum(unit.kept for unit in written)
    assert read == kept + sum(dropped.values()), (
        f"reviews lost: read {read}, kept {kept}, dropped {dropped}"
    )
    why = f"{plan.files[0].name}: no usable review in the dump: read {read}, dropped {dropped}; "
    require(kept, why + "name the column of their texts with `--columns text=NAME`")
    files = {file.name: {"read": 0, "kept": 0} for file in plan.files}
    for first, second in zip(prepared, written, strict=True):
        files[first.file]["read"] += first.read
        files[first.file]["kept"] += second.kept
    typed, labels, about = {}, {}, list[str]()
    for column, known in write.decide_labels(prepared, plan.config).items():
        typed[column] = values.keep_frequent(write.count_values(prepared, column))
        labels[column] = choose_classes(write.count_values(written, column))
        about.append(warn_of_label(column, labels[column]))
        if offer := values.offer_first_level(known.names.values(), column):
            about.append(f"label {column}: {offer}")
        several = sum_counts(unit.contradicted.get(column, {}) for unit in written)
        for both, n in Counter(several).most_common(values.SHOWN):
            about.append(f"label {column}: {n:,} texts with both {both}, which are in no class")
    scale = write.decide_scale(prepared, plan.config.stars_scale)
    if not plan.config.stars_scale and scale.name == "0-10":
        about.append(ON_TEN)
    ratings = decode_ratings(sum_counts(unit.ratings for unit in prepared))
    mapped = scale.map_ratings(np.array([number for number, _ in ratings]))
    unknown = sum(n for n, code in zip(ratings.values(), mapped, strict=True) if not code)
    noted = sum_counts(
        [*(unit.notes for unit in prepared), {"stars_unknown": unknown} if unknown else {}]
    )
    sides, lost = sum_counts(unit.splits for unit in written), dropped.get("withheld", 0)
    of = lost + sum(sides.get(side, 0) for side in TRAINED_SPLITS)
    if lost > MIN_WITHHELD * of:
        about.append(
            f"{lost:,} of {of:,} reviews to train on ({lost / of:.0%}) are withheld: they nearly "
            "repeat dev or test reviews or evaluation texts"
        )
    return {
        "bytes": sum(unit.bytes for unit in prepared),
        "read": read,
        "kept": kept,
        "dropped": dropped,
        "splits": sides,
        "split_by": {"by": plan.config.split_by, "without": noted.get(NO_KEY, 0)},
        "stars": sum_counts(unit.stars for unit in written),
        "sentences": sum(unit.sentences for unit in written),
        "language_sample": json.loads(storage.read_bytes(plan.folders.languages)),
        "stars_scale": scale.name,
        "notes": noted,
        "files": files,
        "columns": list_columns(plan),
        "units": len(prepared),
        **({"withheld_files": list(plan.withheld_names)} if plan.withheld_names else {}),
        **({"withheld_corpus": plan.withheld_digest} if plan.withheld_digest else {}),
        **({"labels": labels, "label_values": typed} if labels else {}),
        **({"warnings": warnings} if (warnings := list(filter(None, about))) else {}),
    }


def list_columns(plan: CorpusPlan) -> dict[str, Any]:
    """Return the columns of all files: those of each field, and those that give none."""
    pairs = {pair for file in plan.files for pair in file.layout.mapping}
    unused = {name for file in plan.files for name in file.layout.unused}
    used = {field: sorted(name for f, name in pairs if f == field) for field, _ in sorted(pairs)}
    return {"used": used, "unused": sorted(unused)}
