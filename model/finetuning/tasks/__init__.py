"""The tasks by name; one module per format."""

from model.command import UserMistake
from model.finetuning.examples import Task
from model.finetuning.tasks import corpus

TASKS: dict[str, Task] = {task.name: task for module in (corpus,) for task in module.TASKS}


def find(name: str) -> Task:
    if name not in TASKS:
        raise UserMistake(f"--task {name}: unknown; the tasks are {', '.join(sorted(TASKS))}")
    return TASKS[name]
