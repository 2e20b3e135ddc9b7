"""Prints the results at the end of a run, from the report's numbers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.report.sections import format_change, format_with_interval, get_title

if TYPE_CHECKING:
    from rich.table import Table

NOT_SHOWN = "ece"
"""Metric of the report alone: a line of a terminal has room for three."""
TABLE_WIDTH = 110
"""Characters of a line where no terminal says how many it has."""
SHORTEST_NAME = 11
"""Characters of a task's or arm's column, below which metrics are left to the report."""
BORDERS = 3
"""Characters that a column takes beside its text."""


def print_results(folder: Path) -> None:
    """Print a table of arms and tasks for each set of metrics, then every difference."""
    from rich.console import Console

    report = json.loads((folder / "report.json").read_text())
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH)
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in report["results"]:
        alike.setdefault(tuple(m for m in row["metrics"] if m != NOT_SHOWN), []).append(row)
    for metrics, rows in alike.items():
        table, width = build_table(report["title"], metrics, rows, console.width)
        console.width = max(console.width, width)
        console.print(table)
    for row in report["results"]:
        if row.get("only_answer"):
            console.print(f"! {row['only_answer']}", style="bold red", soft_wrap=True)
    for difference in report["differences"]:
        console.print(format_difference(difference), soft_wrap=True)


def build_table(
    title: str, metrics: Sequence[str], rows: Sequence[Mapping[str, Any]], width: int
) -> tuple["Table", int]:
    """Return a table of at most `width` characters, and its width.

    Names wrap. Numbers do not: metrics that find no room are left to the report, but for the first.
    """
    from rich.table import Table

    columns = {
        metric: [
            get_title(metric),
            *(format_with_interval(metric, r["metrics"][metric]) for r in rows),
        ]
        for metric in metrics
    }
    seeds = ["seeds", *(row.get("seeds_told") or str(len(row["seeds"])) for row in rows)]
    names = {name: [name, *(row[name] for row in rows)] for name in ("task", "arm")}

    def measure(texts: Sequence[str]) -> int:
        return max(map(len, texts)) + BORDERS

    def measure_room() -> int:
        return width - 1 - measure(seeds) - sum(measure(texts) for texts in columns.values())

    needed = sum(min(measure(texts), SHORTEST_NAME + BORDERS) for texts in names.values())
    while len(columns) > 1 and measure_room() < needed:
        columns.popitem()
    rest = [get_title(metric) for metric in metrics if metric not in columns]
    caption = "test split, 95% intervals" + (f"; {', '.join(rest)}: in the report" if rest else "")
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    room = max(measure_room(), needed)
    longest = [measure(texts) for texts in names.values()]
    widths = [
        min(own, max(room - other, room // 2)) - BORDERS for own, other in (longest, longest[::-1])
    ]
    for name, characters in zip(names, widths, strict=True):
        table.add_column(name, width=characters, overflow="fold")
    for texts in (seeds, *columns.values()):
        table.add_column(texts[0], width=measure(texts) - BORDERS, no_wrap=True)
    for cells in list(zip(*names.values(), seeds, *columns.values(), strict=True))[1:]:
        table.add_row(*cells)
    return table, width - measure_room() + sum(widths) + 2 * BORDERS


def format_difference(difference: Mapping[str, Any]) -> str:
    """Return a difference as text.

    For example: polarity: pre-trained − random = +4.2 points of accuracy of this one checkpoint
    (+1.1 to +7.3, p = 0.007): …
    """
    d, metric = difference, difference["metric"]
    low, high = (format_change(metric, d[end]).removesuffix(" points") for end in ("low", "high"))
    scope = " of this one checkpoint" if d.get("one_checkpoint") else ""
    change = f"{format_change(metric, d['difference'])} of {get_title(metric)}{scope}"
    return (
        f"{d['task']}: {d['a']} − {d['b']} = {change} "
        f"({low} to {high}, p = {d['p']:.2g}): {d['words']}"
    )
