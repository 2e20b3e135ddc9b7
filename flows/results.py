"""The results table at the end of a run, from the report's numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS = ("accuracy", "macro_f1", "loss")
AS_PERCENT = {"accuracy", "macro_f1"}
TABLE_WIDTH = 110  # characters; a terminal wraps what is wider than itself


def print_results(folder: Path) -> None:
    """On stdout: a table of arms and tasks, then every difference with its interval."""
    from rich.console import Console
    from rich.table import Table

    report = json.loads((folder / "report.json").read_text())
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, TABLE_WIDTH)
    table = Table(
        title=report["title"], title_justify="left", caption="test split, 95% intervals", caption_justify="left"
    )
    for column in ("task", "arm", "seeds", *METRICS):
        table.add_column(column, no_wrap=True)
    for row in sorted(report["results"], key=lambda row: row["task"]):
        shown = [with_interval(row["metrics"].get(metric), metric in AS_PERCENT) for metric in METRICS]
        table.add_row(row["task"], row["arm"], str(len(row["seeds"])), *shown)
    console.print(table)
    for difference in report["differences"]:
        console.print(in_words(difference), soft_wrap=True)


def with_interval(metric: Mapping[str, float] | None, percent: bool) -> str:
    if metric is None:
        return "–"
    scale, digits = (100, 1) if percent else (1, 3)
    value, low, high = (metric[name] * scale for name in ("value", "low", "high"))
    return f"{value:.{digits}f} ({low:.{digits}f} – {high:.{digits}f})"


def in_words(difference: Mapping[str, Any]) -> str:
    """For example: polarity: pre-trained − random = +4.2 points of accuracy (+1.1 to +7.3, p = 0.007): …"""
    d = difference
    points, low, high = (100 * d[name] for name in ("difference", "low", "high"))
    of = f"{d['task']}: {d['a']} − {d['b']} = {points:+.1f} points of {d['metric']}"
    return f"{of} ({low:+.1f} to {high:+.1f}, p = {d['p']:.2g}): {d['words']}"
