"""Evaluate a fine-tuned model folder: `python -m amazon_electra.model.evaluate --model DIR --task
NAME --data DIR --output DIR`.

Writes predictions.parquet (one row per example), metrics.json (every metric with its bootstrap 95%
interval, and the confusion matrix) and mistakes.jsonl (the hundred worst, with their text).
"""

from pathlib import Path
from typing import Annotated

from typing_extensions import Doc

from amazon_electra.model.config import DATA, DEVICE, TASK, Device
from amazon_electra.model.evaluation.evaluate import evaluate_model
from amazon_electra.model.finetuning.examples import Split
from amazon_electra.model.finetuning.head import read_task_head
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.results import EvaluationResult


def evaluate(
    model: Annotated[str | Path, Doc("folder that model.finetune wrote")],
    task: Annotated[str, TASK],
    data: Annotated[str | Path, DATA],
    output: Annotated[str | Path, Doc("folder for predictions and metrics")],
    *,
    split: Annotated[Split, Doc("split of the task to evaluate on")] = "test",
    device: Annotated[Device, DEVICE] = "auto",
) -> EvaluationResult:
    """Evaluate a folder of `model.finetune` on a split of a task's data; write the predictions and
    metrics to `output`.
    """
    model, data, output = Path(model), Path(data), Path(output)
    found = find_task(task, data, read_task_head(model).labels)
    return EvaluationResult.of(evaluate_model(model, found, data, output, split, device))


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(evaluate)
