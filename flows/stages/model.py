"""The model folder: the best arm of a task by dev, in a form that others load."""

from collections.abc import Sequence
from pathlib import Path

from flows.stages.finetuning import Cell
from flows.stages.origin import locate_stage
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store


def build_model_stage(cells: Sequence[Cell], corpus: Stage) -> Stage:
    """Return the stage of the model folder of the first task of these cells."""
    task = cells[0].task
    own = [cell for cell in cells if cell.task == task]

    def list_arguments(store: Store, folder: Path) -> list[str]:
        return [
            *["--cells", *(f"{cell.arm}={store.fetch(cell.finetuned)}" for cell in own)],
            *["--evaluations", *(str(store.fetch(cell.evaluated)) for cell in own)],
            *["--task", task, "--data", locate_stage(store, corpus), "--output", str(folder)],
        ]

    cells_by_title = {cell.finetuned.title: cell.finetuned for cell in own}
    tests_by_title = {cell.evaluated.title: cell.evaluated for cell in own}
    return Stage(
        "model",
        VERSIONS["model"],
        {"task": task},
        {**cells_by_title, **tests_by_title, "data": corpus},
        "model.export",
        list_arguments,
        title=f"model · {task}",
    )
