"""Fine-tunes an encoder on a task: `python -m model.finetune --encoder DIR|random --task NAME --data DIR --output DIR`.

Every learning rate of the grid is trained from the same start and the best on dev is kept: the same care for every
arm of a comparison, a random encoder included.
"""

import argparse
from pathlib import Path
from typing import Any

from model.command import assigned, main
from model.finetuning.config import FinetuningSettings
from model.finetuning.tasks import TASKS, find


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = parser().parse_args(argv)
    settings = settings_of(arguments)
    task = find(arguments.task, arguments.data)

    from model.finetuning.fit import fit, fitted, make_folder

    if arguments.evaluation:
        make_folder("--evaluation", arguments.evaluation)
    start = start_of(arguments)
    asked = (start, task, arguments.data, arguments.output, settings, arguments.seed)
    ended_in_the_evaluation = arguments.evaluation and not (arguments.evaluation / "metrics.json").exists()
    result = (fitted(*asked) if ended_in_the_evaluation else None) or fit(*asked, device=arguments.device)
    if arguments.evaluation is not None:
        from model.evaluation.evaluate import evaluate

        evaluation = evaluate(arguments.output, task, arguments.data, arguments.evaluation, device=arguments.device)
        result["test"] = {name: metric["value"] for name, metric in evaluation["metrics"].items()}
    return result


ENCODERS = "model folder or hub name; `random` (with --architecture); `half`: every second layer of --teacher"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m model.finetune", description=__doc__)
    parser.add_argument("--encoder", required=True, metavar="DIR|random|half", help=ENCODERS)
    parser.add_argument("--architecture", metavar="DIR", help="for `random`: folder whose config and tokenizer to use")
    parser.add_argument(
        "--teacher", type=Path, metavar="DIR", help="distil: learn from this fine-tuned folder's outputs too"
    )
    parser.add_argument(
        "--teacher_outputs",
        type=Path,
        metavar="DIR",
        help="where what teachers said is kept for all their students (default: --output)",
    )
    parser.add_argument(
        "--task", required=True, metavar="NAME", help=f"one of {', '.join(sorted(TASKS))}, table:text=…,label=…"
    )
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="the task's data")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the fine-tuned model folder")
    parser.add_argument("--evaluation", type=Path, metavar="DIR", help="also evaluate on test and write it here")
    parser.add_argument("--seed", type=int, default=0, help="head, order, dropout, training examples (default 0)")
    parser.add_argument("--preset", metavar="NAME", help="start from this preset's fine-tuning defaults")
    parser.add_argument("--learning_rate", type=float, nargs="+", metavar="RATE", help="the grid; best on dev is kept")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "xla"))
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="any setting; repeatable")
    parser.epilog = "Settings: " + ", ".join(FinetuningSettings.__dataclass_fields__)
    return parser


def start_of(arguments: argparse.Namespace) -> Any:
    from model.finetuning.fit import Start

    return Start(arguments.encoder, arguments.architecture, arguments.teacher, arguments.teacher_outputs)


def settings_of(arguments: argparse.Namespace) -> FinetuningSettings:
    """Defaults, then the preset's, then what the command line says."""
    from dataclasses import replace

    base = FinetuningSettings.of_preset(arguments.preset) if arguments.preset else FinetuningSettings()
    given = assigned("--set", arguments.set, "FIELD=VALUE")
    changes: dict[str, Any] = {name: FinetuningSettings.parse(name, text) for name, text in given.items()}
    if arguments.learning_rate:
        changes["learning_rates"] = tuple(arguments.learning_rate)
    return replace(base, **changes)


if __name__ == "__main__":
    main(run)
