"""The first line of a report: which arm is best, by how much, and what it costs."""

import json
from collections.abc import Sequence
from pathlib import Path

from amazon_electra.model.arms import TFIDF_ARM
from amazon_electra.model.report.inputs import CellFacts
from amazon_electra.model.report.results import Results
from amazon_electra.model.report.sections import format_change, format_range, get_title

COST = "cost.json"
"""Of a model folder: its megabytes, and the milliseconds of a review."""
MAX_OTHERS = 3
"""Arms that the best one is compared with: TF-IDF and those that are nearest."""
MIN_FACTOR = 1.5
"""From which on a difference in CPU seconds is said."""


def describe_decision(
    results: Results, cells: Sequence[CellFacts], model: Path | None
) -> list[str]:
    """Return the sentence about the first task: the best arm, its gain over others and what they
    cost beside it; and what the model that is kept takes. Nothing where there is no other arm.
    """
    task = results.tasks[0]
    best = results.find_best_arm(task)
    others = [arm for arm in results.arms if arm != best and results.list_cells(arm, task)]
    is_kept = best == TFIDF_ARM or best not in results.untrained
    if not is_kept or not best or not others:
        return []
    metric = results.get_main_metric(task)
    reached = {arm: results.pool_metrics(arm, task)[metric]["value"] for arm in others}
    others.sort(key=lambda arm: (arm != TFIDF_ARM, -reached[arm]))
    seconds = {one.arm: one.cpu_seconds for one in cells if one.task == task and not one.labels}
    clauses = []
    differences = results.compare_pairs([(best, arm) for arm in others[:MAX_OTHERS]])
    for found in (one for one in differences if one.task == task):
        change = format_change(metric, found.comparison.difference)
        clause = f"{change} ({format_range(found.comparison)}) over {found.b}"
        clauses.append(clause + compare_cost(seconds.get(found.b, 0), seconds.get(best, 0)))
    text = f"{best} is best by {get_title(metric)}: {'; '.join(clauses)}."
    if seconds.get(best):
        text += f" Its training took {seconds[best]:,.0f} CPU seconds."
    file = model / COST if model else None
    if file and file.is_file():
        cost = json.loads(file.read_text(encoding="utf-8"))
        text += (
            f" The model takes {cost['megabytes']:,.1f} MB and {cost['milliseconds']:,.1f} ms "
            "a review, one at a time on a CPU."
        )
    return [text]


def compare_cost(other: float, best: float) -> str:
    """Return how many times the CPU seconds of the best arm another one takes, where it matters."""
    if not other or not best:
        return ""
    if other >= MIN_FACTOR * best:
        return f", which costs {other / best:,.3g} times the CPU"
    if best >= MIN_FACTOR * other:
        return f", which costs {other / best:,.2g} of the CPU"
    return ""
