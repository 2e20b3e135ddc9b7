"""Evaluates a fine-tuned model folder: `python -m model.evaluate --model DIR --task NAME --data DIR --output DIR`.

Writes predictions.parquet (one row per example), metrics.json (every metric with its bootstrap 95% interval, confusion
matrix, slices) and mistakes.jsonl (the hundred worst, with their text).
"""

import argparse
from pathlib import Path
from typing import Any

from model.command import main
from model.finetuning.examples import SPLITS
from model.finetuning.tasks import TASKS, find


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m model.evaluate", description=__doc__)
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="a folder made by model.finetune")
    parser.add_argument("--task", required=True, metavar="NAME", help=f"one of {', '.join(sorted(TASKS))}")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="the task's data")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--split",
        default="test",
        choices=(*SPLITS, "submission"),
        help="`submission` (GLUE) writes the file the official site takes, from the test set without labels",
    )
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "xla"))
    arguments = parser.parse_args(argv)
    from model.evaluation.evaluate import evaluate, submit
    from model.finetuning.encoders import read_head

    task = find(arguments.task, arguments.data, read_head(arguments.model).labels)
    if arguments.split == "submission":
        return submit(arguments.model, task, arguments.data, arguments.output, arguments.device)
    return evaluate(arguments.model, task, arguments.data, arguments.output, arguments.split, arguments.device)


if __name__ == "__main__":
    main(run)
