"""The model folder: the best arm of a task by dev, in a form that others load."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flows.stages.finetuning import Cell
from flows.stages.origin import locate_stage
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store


def build_model_stage(cells: Sequence[Cell], corpus: Stage) -> Stage:
    """Return the stage of the model folder of the first task of these cells."""
    task = cells[0].task
    own = [cell for cell in cells if cell.task == task]
    arms = [cell.arm for cell in own]
    finetuned, evaluated = [cell.finetuned for cell in own], [cell.evaluated for cell in own]
    cells_by_title = {cell.finetuned.title: cell.finetuned for cell in own}
    tests_by_title = {cell.evaluated.title: cell.evaluated for cell in own}
    return Stage(
        "model",
        VERSIONS["model"],
        {"task": task},
        {**cells_by_title, **tests_by_title, "data": corpus},
        "model.export",
        partial(format_model_arguments, task, arms, finetuned, evaluated, corpus),
        title=f"model · {task}",
    )


def format_model_arguments(
    task: str,
    arms: list[str],
    finetuned: list[Stage],
    evaluated: list[Stage],
    corpus: Stage,
    store: Store,
    folder: Path,
) -> list[str]:
    """Return the command line that writes the model folder; `arms` are the names of the cells."""
    folders = [str(store.fetch(stage)) for stage in finetuned]
    return [
        *["--cells", *(f"{arm}={cell}" for arm, cell in zip(arms, folders, strict=True))],
        *["--evaluations", *(str(store.fetch(stage)) for stage in evaluated)],
        *["--task", task, "--data", locate_stage(store, corpus), "--output", str(folder)],
    ]
