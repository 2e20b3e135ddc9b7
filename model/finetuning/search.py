"""Searches fine-tuning settings on dev with Optuna: trials that fall behind are pruned, a killed search goes on.

`python -m model.finetuning.search` takes what model.finetune takes, and --space FILE: JSON of setting → choices, or
{"low", "high", "log"}. The test split is never looked at.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.command import UserMistake, main
from model.finetune import parser as finetune_parser
from model.finetune import settings_of, start_of
from model.finetuning import search_space
from model.finetuning.config import FinetuningSettings
from model.finetuning.examples import Task
from model.finetuning.search_space import Space
from model.finetuning.tasks import find
from model.json_file import write_json

if TYPE_CHECKING:
    from model.finetuning.distillation import Teacher
    from model.finetuning.fit import Prepared, Start

STARTUP_TRIALS = 4
"""Before any is pruned."""
PARTS = 5
"""Of a training, after which trials are compared: at equal shares of it, for with another batch or another number of
epochs the same step is another place on the way."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = finetune_parser()
    parser.prog, parser.description = "python -m model.finetuning.search", __doc__
    parser.add_argument("--space", required=True, type=Path, metavar="FILE", help="JSON: setting → choices or range")
    parser.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args(argv)
    if arguments.trials < 1:
        raise UserMistake(f"--trials {arguments.trials}: give at least 1")
    settings = settings_of(arguments)
    space = search_space.read(arguments.space, distils=arguments.teacher is not None)
    task = find(arguments.task, arguments.data)
    optuna = _optuna()
    from model.device import open_device
    from model.finetuning.fit import check, load_teacher_of, make_folder, prepare

    start = start_of(arguments)
    check(task, settings, arguments.seed)
    make_folder("--output", arguments.output)
    prepared = prepare(start, task, arguments.data, settings, arguments.seed)
    device = open_device(arguments.device, settings.precision)
    teacher = load_teacher_of(start, task, prepared, device, arguments.output)
    study = optuna.create_study(
        direction="maximize",
        storage=f"sqlite:///{arguments.output.resolve()}/optuna.db",
        study_name="search",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
    )
    objective = Objective(start, task, prepared, settings, arguments.seed, arguments.device, teacher, space)
    for number in range(len(_finished(study)), arguments.trials):
        study.sampler = optuna.samplers.TPESampler(seed=(arguments.seed + number) % 2**32)
        study.optimize(objective, n_trials=1)
    return _write(study, task.metrics[0], arguments.output)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserMistake("a search needs optuna: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _finished(study: Any) -> list[Any]:
    """Trials that came to an end; one that was killed is drawn anew, from the same numbers."""
    return [trial for trial in study.trials if trial.state.is_finished()]


@dataclass(frozen=True)
class Objective:
    """One trial is one training with the settings drawn; its dev metric is told after every part of it."""

    start: "Start"
    task: Task
    prepared: "Prepared"
    settings: FinetuningSettings
    seed: int
    device: str
    """Opened by each trial, whose precision may be its own."""
    teacher: "Teacher | None"
    space: Space

    def __call__(self, trial: Any) -> float:
        import optuna

        from model.device import open_device
        from model.finetuning.fit import train_once

        found = search_space.as_settings(search_space.draw(trial, self.space))
        found["learning_rates"] = tuple(found.get("learning_rates", self.settings.learning_rates))
        chosen = replace(self.settings, **found)
        chosen.check(self.task)
        report = reporter(trial, f"dev_{self.task.metrics[0]}")
        device = open_device(self.device, chosen.precision)
        attempt = train_once(self.start, self.task, self.prepared, chosen, self.seed, device, self.teacher, report)
        if attempt.diverged:
            raise optuna.TrialPruned
        return attempt.rank()[0]


def reporter(trial: Any, metric: str) -> Callable[[float, dict[str, Any]], None]:
    """Tells the trial how far it is and what it scored, and ends it where it has fallen behind."""
    import optuna

    told: set[int] = set()

    def report(share: float, numbers: dict[str, Any]) -> None:
        part = math.floor(PARTS * share + 1e-9)
        if part == 0 or part in told:
            return
        told.add(part)
        trial.report(numbers[metric], part)
        if share < 1 and trial.should_prune():
            raise optuna.TrialPruned

    return report


def _write(study: Any, metric: str, output: Path) -> dict[str, Any]:
    finished = _finished(study)
    trials = [
        {
            "number": number,
            "state": trial.state.name.lower(),
            "settings": search_space.as_settings(trial.params),
            f"dev_{metric}": trial.value,
        }
        for number, trial in enumerate(finished)
    ]
    write_json(output / "trials.json", trials)
    states = [trial["state"] for trial in trials]
    if "complete" not in states:
        raise UserMistake(f"none of the {len(trials)} trials came to an end: give lower learning rates in the space")
    best = {"settings": search_space.as_settings(study.best_params), f"dev_{metric}": study.best_value}
    best |= {"trials": len(trials), "pruned": states.count("pruned"), "complete": states.count("complete")}
    write_json(output / "best.json", best)
    return best


if __name__ == "__main__":
    main(run)
