"""List the tasks by name; one module per format."""

from collections.abc import Sequence
from pathlib import Path

from beam_jobs.core.errors import UserError
from model.finetuning.examples import Task
from model.finetuning.tasks import (
    amazonqa,
    conll,
    corpus,
    fasttext,
    glue,
    imdb,
    squad,
    subjqa,
    swag,
    table,
)

MODULES = (
    corpus,
    fasttext,
    imdb,
    glue,
    squad,
    subjqa,
    amazonqa,
    conll,
    swag,
)
TASKS: dict[str, Task] = {task.name: task for module in MODULES for task in module.TASKS}


def find_task(name: str, data: Path | None = None, labels: Sequence[str] | None = None) -> Task:
    """Return a task by name; `table:…` and `label:…` need the data, or the labels, to know their
    classes.
    """
    if name.startswith("table:"):
        return table.make_table_task(name, data or Path(), labels)
    if name.startswith(corpus.LABEL):
        return corpus.make_label_task(name, data, labels)
    if name not in TASKS:
        raise UserError(
            f"--task {name}: unknown; the tasks are {', '.join(sorted(TASKS))}, "
            "label:COLUMN, table:text=…,label=…"
        )
    return TASKS[name]
