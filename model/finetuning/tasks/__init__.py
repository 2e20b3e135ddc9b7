"""List the tasks by name; one module per format."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.plugins import load_plugins, register_module
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.tasks import (
    amazonqa,
    conll,
    corpus,
    fasttext,
    glue,
    squad,
    swag,
)

MODULES = (corpus, fasttext, glue, squad, amazonqa, conll, swag)
TASKS: dict[str, Task] = {task.name: task for module in MODULES for task in module.TASKS}
DEV_FROM = 25_000
"""Labelled reviews, of which 4% are 1,000 in dev."""


def register_task(task: Task, module: str) -> None:
    """Add a task from another package, whose `module` (`__name__`) child processes import too."""
    TASKS[task.name] = task
    register_module(module)


def list_star_tasks() -> dict[str, Task]:
    load_plugins()
    return {name: task for name, task in TASKS.items() if task.stars}


def count_labelled(name: str, result: Mapping[str, Any]) -> int:
    """Return how many reviews of a corpus have a label of a task; `result` is corpus.json."""
    if name.startswith(corpus.LABEL):
        found = result.get("labels", {}).get(name.removeprefix(corpus.LABEL), {})
        return sum((found.get("texts") or found.get("counts", {})).values())
    counts: Mapping[str, int] = result.get("stars", {})
    stars = {str(number) for number in find_task(name).stars}
    return sum(n for column, n in counts.items() if column.partition(".")[2] in stars)


def has_dev(names: Iterable[str], result: Mapping[str, Any]) -> bool:
    """Return whether the task with most labels has enough to choose by the dev split."""
    return max((count_labelled(name, result) for name in names), default=0) >= DEV_FROM


def find_task(name: str, data: Path | None = None, labels: Sequence[str] | None = None) -> Task:
    if name.startswith(corpus.LABEL):
        return corpus.make_label_task(name, data, labels)
    load_plugins()
    if name not in TASKS:
        raise UserError(
            f"unknown; the tasks are {', '.join(sorted(TASKS))}, label:COLUMN", "task", name
        )
    return TASKS[name]
