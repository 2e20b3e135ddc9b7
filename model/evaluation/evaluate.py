"""Evaluates a fine-tuned folder on a split: predictions.parquet, metrics.json, mistakes.jsonl."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model.command import UserMistake
from model.device import open_device
from model.evaluation import metrics, predictions, spans
from model.evaluation.predict import predict
from model.evaluation.predictions import Predictions
from model.evaluation.significance import interval
from model.evaluation.slices import slices, with_what_all_have
from model.finetuning import encoders
from model.finetuning.batches import Encoder
from model.finetuning.config import FinetuningSettings
from model.finetuning.examples import Example, Split, Task, load
from model.finetuning.tasks import glue
from model.json_file import write_json

WORST = 100
"""Mistakes kept with their text."""


def evaluate(
    folder: Path, task: Task, data: Path, output: Path, split: Split = "test", device: str = "auto"
) -> dict[str, Any]:
    """Examples are chosen as the fine-tuning's own settings say, so every arm and seed meets the same ones."""
    started = time.perf_counter()
    _check(folder, task)
    asked = json.loads((folder / "run.json").read_text())
    settings = FinetuningSettings.of_run(asked)
    left_out: Counter[str] = Counter()
    examples = load(task, data, split, settings.sampling_of(split, asked["seed"]), left_out)
    said = with_what_all_have(_said(folder, task, examples, settings, device), examples, task)
    result = summary(said, task, split) | {
        "left_out": dict(left_out),
        "model": str(folder),
        "data": str(data),
        "learning_rate": json.loads((folder / "result.json").read_text())["learning_rate"],
        "seed": asked["seed"],
        "encoder": asked["encoder"],
        "seconds": round(time.perf_counter() - started, 3),
    }
    output.mkdir(parents=True, exist_ok=True)
    predictions.write(said, output / "predictions.parquet")
    _write_mistakes(said, examples, task, output / "mistakes.jsonl")
    if task.shape == "span":
        write_json(output / "answers.json", dict(zip(said.ids, said.predictions, strict=True)))
    write_json(output / "metrics.json", result)
    return result


def submit(folder: Path, task: Task, data: Path, output: Path, device: str = "auto") -> dict[str, Any]:
    """The official site's files for a GLUE task, from its test set without labels: examples by file."""
    if task.name not in glue.SPECS:
        raise UserMistake(f"--task {task.name}: only GLUE's tasks have a submission: {', '.join(glue.SPECS)}")
    _check(folder, task)
    settings = FinetuningSettings.of_run(json.loads((folder / "run.json").read_text()))
    output.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, examples in glue.submission_examples(task.name, data).items():
        said = _said(folder, task, examples, settings, device)
        files[str(output / f"{name}.tsv")] = len(examples)
        lines = glue.submission_lines(task.name, said.predictions)
        (output / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return {"task": task.name, "submission": files}


def _check(folder: Path, task: Task) -> None:
    trained = encoders.read_head(folder).task
    if trained not in (task.name, *task.trained_as):
        raise UserMistake(f"{folder} was fine-tuned on {trained}, not on {task.name}: use --task {trained}")


def _said(
    folder: Path, task: Task, examples: Sequence[Example], settings: FinetuningSettings, device: str
) -> Predictions:
    model, head, tokenizer = encoders.load(folder)
    encode = Encoder(tokenizer, head.shape, head.max_length, head.stride, head.clean)
    target = open_device(device, settings.precision)
    return predict(model.to(target.torch), encode, examples, target, task, head.threshold)


def summary(said: Predictions, task: Task, split: str) -> dict[str, Any]:
    """Every metric with its 95% interval; for classes also the confusion matrix, for answers the official numbers."""
    result: dict[str, Any] = {
        "task": task.name,
        "split": split,
        "n": len(said),
        "main_metric": task.metrics[0],
        "metrics": {name: interval(metrics.METRICS[name], said) for name in task.metrics},
    }
    if task.shape == "classification":
        result |= {"labels": list(task.labels), "confusion": metrics.confusion(said)}
    if task.shape == "span":
        result["official"] = spans.official(said, task.always_answered)
    result["slices"] = slices(said, task.metrics[:2])
    return result


def _write_mistakes(said: Predictions, examples: Sequence[Example], task: Task, path: Path) -> None:
    """The wrong answers the network was surest of, the worst first."""
    order = np.argsort(-np.nan_to_num(said.loss), kind="stable")
    wrong = said.wrong()
    wrong_first = [i for i in order if wrong[i]][:WORST]
    with path.open("w", encoding="utf-8") as file:
        for i in wrong_first:
            example = examples[i]
            row = {
                "example_id": example.id,
                "label": _in_words(task, example, said.labels[i]),
                "prediction": _in_words(task, example, said.predictions[i]),
                "loss": float(said.loss[i]),
                "text": example.text,
            }
            file.write(json.dumps(row | ({"pair": example.pair} if example.pair else {}), ensure_ascii=False) + "\n")


def _in_words(task: Task, example: Example, said: Any) -> Any:
    """A label or prediction as a reader knows it: the class, the ending, every word with its tag; else as it is."""
    match task.shape:
        case "classification" if isinstance(said, int):
            return task.labels[said]
        case "choice" if isinstance(said, int):
            return example.choices[said]
        case "tokens":
            return " ".join(f"{word}/{task.labels[tag]}" for word, tag in zip(example.words, said, strict=False))
    return said
