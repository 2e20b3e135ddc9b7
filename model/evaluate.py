"""Evaluate a fine-tuned model folder: `python -m amazon_electra.model.evaluate --model DIR --task
NAME --data DIR --output DIR`.

Writes predictions.parquet (one row per example), metrics.json (every metric with its bootstrap 95%
interval, and the confusion matrix) and mistakes.jsonl (the hundred worst, with their text).
"""

from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.command import main
from amazon_electra.beam_jobs.core.settings import read_options
from amazon_electra.model.evaluation.evaluate import evaluate_model
from amazon_electra.model.finetuning.examples import Split
from amazon_electra.model.finetuning.head import read_task_head
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.options import EvaluateOptions
from amazon_electra.model.results import EvaluationResult


def evaluate(
    model: str | Path,
    task: str,
    data: str | Path,
    output: str | Path,
    *,
    split: Split = "test",
    device: str = "auto",
) -> EvaluationResult:
    """Evaluate a folder of `model.finetune` on a split of a task's data; write the predictions and
    metrics to `output`.
    """
    model, data, output = Path(model), Path(data), Path(output)
    found = find_task(task, data, read_task_head(model).labels)
    return EvaluationResult.of(evaluate_model(model, found, data, output, split, device))


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Read the options and call `evaluate`."""
    options = read_options(
        EvaluateOptions, argv, "python -m amazon_electra.model.evaluate", __doc__
    )
    return evaluate(**dict(options)).content


if __name__ == "__main__":
    main(run, EvaluateOptions)
