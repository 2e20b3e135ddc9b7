"""The result of a corpus job, from the counts of its units: every review read is accounted for."""

import time
from collections.abc import Callable
from typing import Any

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.progress import Progress
from beam_jobs.corpus import unit_counts
from beam_jobs.corpus.plan import CorpusPlan
from beam_jobs.reading import fields

WRITE_REASONS = ("seen before", "duplicate", "near duplicate", "withheld (own)")
"""Why the second pass drops a review; the first pass counts its own reasons."""


class CorpusProgress:
    """Shows how many units are done, in both passes, and how many reviews have been read."""

    def __init__(self, plan: CorpusPlan) -> None:
        self._folders = plan.folders
        self._read: dict[str, int] = {}
        self._started = time.monotonic()

    def update_bar(self, bar: Progress) -> None:
        prepared = unit_counts.list_finished(self._folders.prepared)
        done = len(prepared) + len(unit_counts.list_finished(self._folders.written))
        for name in prepared:
            if name not in self._read:
                counts = unit_counts.read_counts(self._folders.prepared, name)
                self._read[name] = counts["read"]
        bar.total = max(bar.total or 0, done)
        reviews = sum(self._read.values())
        rate = round(reviews / (time.monotonic() - self._started))
        bar.update(done, reviews=reviews, reviews_per_second=rate)


def finish_corpus(plan: CorpusPlan, measure: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
    """Write corpus.json, the mark of a finished corpus, with what `measure` returns last; return
    its content. The work folder is removed.
    """
    result = summarize_corpus(plan) | measure()
    storage.write_json(storage.join_path(plan.folders.output, "corpus.json"), result)
    storage.remove_path(plan.folders.work)
    return result


def write_totals(units: int, plan: CorpusPlan) -> None:
    """Finish a corpus of so many units as a step of the graph, which an engine may repeat."""
    if storage.exists(storage.join_path(plan.folders.output, "corpus.json")):
        storage.remove_path(plan.folders.work)
        return
    totals = finish_corpus(plan)
    assert totals["units"] == units, f"{units} units written, {totals['units']} counted"


def summarize_corpus(plan: CorpusPlan) -> dict[str, Any]:
    """Return the totals of all units.

    Raises UserError if no review could be used. Reviews read = kept + dropped is asserted.
    """
    prepared = unit_counts.read_all_counts(plan.folders.prepared)
    written = unit_counts.read_all_counts(plan.folders.written)
    assert len(prepared) == len(written), f"{len(prepared)} units prepared, {len(written)} written"
    dropped = sum_dropped(prepared, written)
    read = sum(unit["read"] for unit in prepared)
    kept = sum(unit["kept"] for unit in written)
    assert read == kept + sum(dropped.values()), (
        f"reviews lost: read {read}, kept {kept}, dropped {dropped}"
    )
    if not kept and not dropped.get("seen before"):
        raise UserError(f"no usable review in the dump: read {read}, dropped {dropped}")
    withheld = {"withheld_files": list(plan.withheld_files)} if plan.withheld_files else {}
    stars, columns = unit_counts.sum_counts(unit["stars"] for unit in written), list_columns(plan)
    has_stars = any(not name.endswith("none") for name in stars)
    return {
        "read": read,
        "kept": kept,
        "dropped": dropped,
        "splits": unit_counts.sum_counts(unit["splits"] for unit in written),
        "stars": stars,
        "sentences": sum(unit["sentences"] for unit in written),
        "notes": unit_counts.sum_counts(unit["notes"] for unit in prepared),
        "files": {file.name: count_file(prepared, written, file.name) for file in plan.files},
        "columns": columns,
        "units": len(prepared),
        "seen": {"corpora": list(plan.earlier.folders), "reviews": plan.earlier.reviews},
        **withheld,
        **({} if has_stars or not kept else {"warnings": [warn_of_missing_stars(columns)]}),
        "agreed": plan.shared_settings,
    }


def warn_of_missing_stars(columns: dict[str, dict[str, Any]]) -> str:
    """Return what to do about a corpus without stars."""
    unused = ", ".join(fields.describe_unused_columns(columns["unused"])) or "none"
    return (
        "no review has stars, so nothing can be fine-tuned for polarity or stars on this corpus; "
        f"columns that are not used: {unused}; {fields.HINT}"
    )


def list_columns(plan: CorpusPlan) -> dict[str, dict[str, Any]]:
    """Return the columns of all files: those of each field, and unused ones with the closest field.

    A column that one file uses may be unused in another.
    """
    pairs = {pair for file in plan.files for pair in file.layout.mapping}
    unused = {pair for file in plan.files for pair in file.layout.unused}
    used = {field: sorted(name for f, name in pairs if f == field) for field, _ in sorted(pairs)}
    return {"used": used, "unused": dict(sorted(unused))}


def sum_dropped(prepared: list[dict[str, Any]], written: list[dict[str, Any]]) -> dict[str, int]:
    """Return reason → reviews dropped in either pass; reasons that never applied are left out."""
    found = [{reason: unit[reason] for reason in WRITE_REASONS} for unit in written]
    dropped = unit_counts.sum_counts([*(unit["dropped"] for unit in prepared), *found])
    return {reason: n for reason, n in dropped.items() if n}


def count_file(
    prepared: list[dict[str, Any]], written: list[dict[str, Any]], name: str
) -> dict[str, int]:
    """Return the reviews read and kept of one file of the dump."""
    units = [pair for pair in zip(prepared, written, strict=True) if pair[0]["file"] == name]
    return {"read": sum(f["read"] for f, _ in units), "kept": sum(s["kept"] for _, s in units)}
