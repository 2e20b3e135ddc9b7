"""Evaluate a fine-tuned model folder: `python -m model.evaluate --model DIR --task NAME --data DIR
--output DIR`.

Writes predictions.parquet (one row per example), metrics.json (every metric with its bootstrap 95%
interval, and the confusion matrix) and mistakes.jsonl (the hundred worst, with their text).
"""

from typing import Any

from beam_jobs.core.command import main
from beam_jobs.core.settings import read_options
from model.evaluation.evaluate import evaluate_model, join_folds
from model.finetuning.network import read_task_head
from model.finetuning.tasks import find_task
from model.options import EvaluateOptions


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = read_options(EvaluateOptions, argv, "python -m model.evaluate", __doc__)
    task = find_task(arguments.task, arguments.data, read_task_head(arguments.model).labels)
    if arguments.folds:
        return join_folds(arguments.model, task, arguments.data, arguments.folds, arguments.output)
    return evaluate_model(
        arguments.model, task, arguments.data, arguments.output, arguments.split, arguments.device
    )


if __name__ == "__main__":
    main(run)
