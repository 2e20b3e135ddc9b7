"""Lists the settings of fine-tuning: those that all cells share, and those in which they differ."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.report.document import Block, Details, Heading, Paragraph, Table
from model.report.results import Cell, Results

SEARCH_MARK = "*"
"""Beside a value that the study's search found."""
Settings = Mapping[str, Any]


def build_setting_blocks(study: Mapping[str, Any], results: Results) -> list[Block]:
    """Return the section, from what each fine-tuned folder kept; empty where none is left."""
    cells = {(c.arm, c.task): kept for c in results.cells if (kept := _read_settings(c))}
    if not cells:
        return []
    searched: Mapping[str, Settings] = study.get("searched") or {}
    by_search = {name for of_arm in searched.values() for name in of_arm}
    values: dict[str, set[str]] = {}
    for settings in cells.values():
        for name, value in settings.items():
            values.setdefault(name, set()).add(_format_setting(value))
    own = [name for name, several in values.items() if len(several) > 1 or name in by_search]
    shared = [(name, *said) for name, said in values.items() if name not in own]
    blocks: list[Block] = [Heading("Settings of fine-tuning")]
    if own:
        blocks.append(
            Table(
                ("arm", "task", *own),
                _merge_rows(cells, own, searched),
                "Those that arms or tasks have of their own",
            )
        )
    if by_search:
        blocks.append(
            Paragraph(f"{SEARCH_MARK} found by the search of this arm, on dev of the first task")
        )
    return [
        *blocks,
        Details(f"{len(shared)} that all share", [Table(("setting", "value"), shared)]),
    ]


def _read_settings(cell: Cell) -> Settings:
    file = Path(str(cell.about.get("model", ""))) / "result.json"
    return json.loads(file.read_text()).get("settings", {}) if file.is_file() else {}


def _merge_rows(
    cells: Mapping[tuple[str, str], Settings], names: list[str], searched: Mapping[str, Settings]
) -> list[tuple[str, ...]]:
    """Return one row for all arms and tasks that have the same values."""
    tasks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (arm, task), settings in cells.items():
        by_search = searched.get(arm, {})
        values = tuple(
            _format_setting(settings.get(name))
            + SEARCH_MARK * (name in by_search and settings.get(name) == by_search[name])
            for name in names
        )
        tasks.setdefault((arm, values), []).append(task)
    arms: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    every_arm, every_task = ({cell[i] for cell in cells} for i in (0, 1))
    for (arm, values), of_arm in tasks.items():
        arms.setdefault((_join_names(of_arm, every_task), values), []).append(arm)
    return [(_join_names(these, every_arm), t, *values) for (t, values), these in arms.items()]


def _join_names(some: list[str], every: set[str]) -> str:
    return "all" if len(every) > 1 and set(some) == every else "; ".join(some)


def _format_setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_setting, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else str(value)
