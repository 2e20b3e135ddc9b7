"""The results at the end of a run, from the report's numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.evaluation.sections import change, title_of, with_interval

NOT_SHOWN = "ece"
"""In the report alone: a line of a terminal has room for three metrics."""
TABLE_WIDTH = 110  # characters; a terminal wraps what is wider than itself


def print_results(folder: Path) -> None:
    """On stdout: a table of arms and tasks for each set of metrics, then every difference with its interval."""
    from rich.console import Console
    from rich.table import Table

    report = json.loads((folder / "report.json").read_text())
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, TABLE_WIDTH)
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in sorted(report["results"], key=lambda row: row["task"]):
        alike.setdefault(tuple(m for m in row["metrics"] if m != NOT_SHOWN), []).append(row)
    for metrics, rows in alike.items():
        table = Table(
            title=report["title"], title_justify="left", caption="test split, 95% intervals", caption_justify="left"
        )
        for column in ("task", "arm", "seeds", *map(title_of, metrics)):
            table.add_column(column, no_wrap=True)
        for row in rows:
            shown = [with_interval(metric, row["metrics"][metric]) for metric in metrics]
            table.add_row(row["task"], row["arm"], str(len(row["seeds"])), *shown)
        console.print(table)
    for difference in report["differences"]:
        console.print(in_words(difference), soft_wrap=True)


def in_words(difference: Mapping[str, Any]) -> str:
    """For example: polarity: pre-trained − random = +4.2 points of accuracy (+1.1 to +7.3, p = 0.007): …"""
    d, metric = difference, difference["metric"]
    low, high = (change(metric, d[end]).removesuffix(" points") for end in ("low", "high"))
    of = f"{d['task']}: {d['a']} − {d['b']} = {change(metric, d['difference'])} of {title_of(metric)}"
    return f"{of} ({low} to {high}, p = {d['p']:.2g}): {d['words']}"
