"""Evaluate a model folder: predictions.parquet has a row for each example, metrics.json each metric
with its bootstrap 95% interval, and the confusion matrix.
"""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.model.arms import find_arm
from amazon_electra.model.arms.arm import Resources
from amazon_electra.model.arms.out_of_fold import OutOfFold, list_labels
from amazon_electra.model.config import DATA, DEVICE, TASK, Device, FinetuningSettings
from amazon_electra.model.evaluation.metrics import METRICS, count_confusions, list_figures
from amazon_electra.model.evaluation.predict import choose_thresholds, predict_sets
from amazon_electra.model.evaluation.predictions import Predictions, write_predictions
from amazon_electra.model.evaluation.significance import compute_interval
from amazon_electra.model.finetuning.examples import Split, Task, load_examples
from amazon_electra.model.finetuning.head import read_task_head
from amazon_electra.model.finetuning.request import choose_sampling
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
    """Evaluate a folder of `model.finetune` on a split of a task's data."""
    model, data, output = Path(model), Path(data), Path(output)
    found = find_task(task, data, read_task_head(model).labels)
    return evaluate_model(model, found, data, output, split, device)


def evaluate_model(
    folder: Path,
    task: Task,
    data: Path,
    output: Path,
    split: Split = "test",
    device: str = "auto",
    cache: Path | None = None,
) -> EvaluationResult:
    """Write predictions.parquet and metrics.json of a split; return the latter."""
    started = time.perf_counter()
    head = read_task_head(folder)
    is_of_task = head.task in (task.name, *task.trained_as)
    require(is_of_task, f"{folder} was fine-tuned on {head.task}", "task", task.name)
    finetuning_run = read_json(folder / "run.json")
    settings = FinetuningSettings.from_run(finetuning_run)
    left_out: Counter[str] = Counter()
    sampling = choose_sampling(settings, split, finetuning_run["seed"])
    examples = load_examples(task, data, split, sampling, left_out)
    fitted = find_arm(head.kind).load(folder, Resources(device, settings.precision, cache))
    if task.shape == "multilabel":
        held_out, logits = OutOfFold.load(folder), fitted.predict_logits(examples)
        thresholds = choose_thresholds(held_out.logits, held_out.labels)
        predictions = predict_sets(logits, list_labels(examples), examples, thresholds)
    else:
        predictions = fitted.predict_examples(examples, task)
    output.mkdir(parents=True, exist_ok=True)
    if task.shape == "span":
        answers = dict(zip(predictions.ids, predictions.predictions, strict=True))
        write_json(output / "answers.json", answers)
    seconds = round(time.perf_counter() - started, 3)
    measured = summarize_predictions(predictions, task, split)
    measured |= {"model": str(folder), "data": str(data), "left_out": dict(left_out)}
    measured |= {name: finetuning_run[name] for name in ("seed", "encoder")}
    measured["seconds"] = seconds
    write_predictions(predictions, output / "predictions.parquet")
    write_json(output / "metrics.json", measured)
    return EvaluationResult.of(measured)


def summarize_predictions(predictions: Predictions, task: Task, split: str) -> dict[str, Any]:
    """Return metrics.json of a split: metrics with 95% intervals, of classes their confusion."""
    metrics = {name: compute_interval(METRICS[name], predictions) for name in task.metrics}
    result: dict[str, Any] = {"task": task.name, "split": split, "n": len(predictions)}
    result |= {"main_metric": task.metrics[0], "metrics": metrics}
    if task.shape == "multilabel":
        figures = list_figures(predictions, task.labels)
        result |= {"labels": list(task.labels), "classes": figures}
    if task.shape == "classification":
        result |= {"labels": list(task.labels), "confusion": count_confusions(predictions)}
    return result


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(evaluate)
