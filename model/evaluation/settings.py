"""The report's section on how the cells were fine-tuned: the settings they share, and those in which they differ."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.evaluation.document import Block, Details, Heading, Paragraph, Table
from model.evaluation.results import Cell, Results

SEARCHED = "*"
"""Beside a value that the study's search found."""
Settings = Mapping[str, Any]


def setting_blocks(study: Mapping[str, Any], found: Results) -> list[Block]:
    """As each fine-tuned folder has kept them; nothing where none is there any more."""
    cells = {(c.arm, c.task): kept for c in found.cells if (kept := _kept(c))}
    if not cells:
        return []
    searched: Mapping[str, Settings] = study.get("searched") or {}
    by_search = {name for of_arm in searched.values() for name in of_arm}
    values: dict[str, set[str]] = {}
    for settings in cells.values():
        for name, value in settings.items():
            values.setdefault(name, set()).add(_text(value))
    own = [name for name, several in values.items() if len(several) > 1 or name in by_search]
    shared = [(name, *said) for name, said in values.items() if name not in own]
    blocks: list[Block] = [Heading("Settings of fine-tuning")]
    if own:
        blocks.append(
            Table(("arm", "task", *own), _rows(cells, own, searched), "Those that arms or tasks have of their own")
        )
    if by_search:
        blocks.append(Paragraph(f"{SEARCHED} found by the search of this arm, on dev of the first task"))
    return [*blocks, Details(f"{len(shared)} that all share", [Table(("setting", "value"), shared)])]


def _kept(cell: Cell) -> Settings:
    file = Path(str(cell.about.get("model", ""))) / "result.json"
    return json.loads(file.read_text()).get("settings", {}) if file.is_file() else {}


def _rows(
    cells: Mapping[tuple[str, str], Settings], names: list[str], searched: Mapping[str, Settings]
) -> list[tuple[str, ...]]:
    """A row for the tasks in which an arm has the same, and one row for all arms that have the same in these tasks."""
    tasks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (arm, task), settings in cells.items():
        found = searched.get(arm, {})
        values = tuple(
            _text(settings.get(name)) + SEARCHED * (name in found and settings.get(name) == found[name])
            for name in names
        )
        tasks.setdefault((arm, values), []).append(task)
    arms: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    every_arm, every_task = ({cell[i] for cell in cells} for i in (0, 1))
    for (arm, values), of_arm in tasks.items():
        arms.setdefault((_named(of_arm, every_task), values), []).append(arm)
    return [(_named(these, every_arm), tasks_named, *values) for (tasks_named, values), these in arms.items()]


def _named(some: list[str], every: set[str]) -> str:
    return "all" if len(every) > 1 and set(some) == every else "; ".join(some)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else str(value)
