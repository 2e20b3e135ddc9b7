"""Runs a study: `python -m model.study NAME|FILE --output DIR [--var corpus=DIR …]`.

Each cell is a process of `python -m model.finetune` in a folder named after everything it depends on, so that a killed
study continues, a changed one repeats only what changed, and two studies share what they have in common. Ends with the
report.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from model.command import assigned, main
from model.evaluation import study_reading


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = parser().parse_args(argv)
    study = study_reading.read(
        arguments.study, assigned("--var", arguments.var, "NAME=VALUE"), assigned("--set", arguments.set, "NAME=VALUE")
    )

    study_reading.check_places(study, arguments.study)
    from model.evaluation.study_run import StudyRun

    runner = StudyRun(
        study=study,
        output=arguments.output,
        keep=arguments.keep,
        at_once=arguments.at_once,
        threads=arguments.threads,
        device=arguments.device,
        command=["python", "-m", "model.study", *(sys.argv[1:] if argv is None else argv)],
        about=json.loads(arguments.about.read_text()) if arguments.about else {},
    )
    return runner.plan() if arguments.dry_run else runner.run()


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number of at least 1")
    return int(text)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m model.study", description=__doc__)
    parser.add_argument(
        "study", metavar="NAME|FILE", help=f"a YAML file, or one of {', '.join(study_reading.shipped())}"
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="the report, and what --keep does not"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="cells and encoders (default: --output); studies may share them"
    )
    parser.add_argument("--var", action="append", default=[], metavar="NAME=VALUE", help="fills ${NAME} in the file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="seeds, or a setting instead of the file's"
    )
    parser.add_argument("--at_once", type=_at_least_one, default=2, help="cells side by side (default 2)")
    parser.add_argument("--threads", type=_at_least_one, default=1, help="threads of each cell (default 1)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "xla"))
    parser.add_argument("--about", type=Path, metavar="FILE", help="JSON for the report: dump, stages, command")
    parser.add_argument("--dry_run", action="store_true", help="print the cells and which are already complete")
    return parser


if __name__ == "__main__":
    main(run)
