"""Search fine-tuning settings on dev with Optuna: trials that fall behind are pruned, a killed
search goes on.

`python -m model.finetuning.search` takes what model.finetune takes, and --space FILE: JSON of
setting → choices, or {"low", "high", "log"}. The test split is never looked at.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beam_jobs.job.command import main
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import make_writable_folder, write_json
from beam_jobs.job.settings import read_options
from model.finetuning import search_space
from model.finetuning.arguments import make_request
from model.finetuning.search_space import Space
from model.options import SearchOptions

if TYPE_CHECKING:
    from model.finetuning.distillation import Teacher
    from model.finetuning.request import PreparedData, Request

STARTUP_TRIALS = 4
"""Trials that run to their end before any is pruned."""
PARTS = 5
"""Parts of a training after which trials are compared. They are equal shares of it, because with
another batch or another number of epochs the same step is another place on the way.
"""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = read_options(SearchOptions, argv, "python -m model.finetuning.search", __doc__)
    space = search_space.read_space(arguments.space, distils=arguments.teacher is not None)
    request = make_request(arguments)
    optuna = _import_optuna()
    from model.device import open_device
    from model.finetuning.fit import load_start_teacher
    from model.finetuning.request import prepare_data

    request.check()
    make_writable_folder("--output", arguments.output)
    prepared = prepare_data(request)
    device = open_device(arguments.device, request.settings.precision)
    teacher = load_start_teacher(request, prepared, device, arguments.output)
    study = optuna.create_study(
        direction="maximize",
        storage=f"sqlite:///{arguments.output.resolve()}/optuna.db",
        study_name="search",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
    )
    objective = Objective(request, prepared, arguments.device, teacher, space)
    for number in range(len(_list_finished_trials(study)), arguments.trials):
        study.sampler = optuna.samplers.TPESampler(seed=(arguments.seed + number) % 2**32)
        study.optimize(objective, n_trials=1)
    return _write_results(study, request.task.metrics[0], arguments.output)


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("a search needs optuna: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _list_finished_trials(study: Any) -> list[Any]:
    """Return the trials that ended; one that was killed is drawn anew, from the same numbers."""
    return [trial for trial in study.trials if trial.state.is_finished()]


@dataclass(frozen=True)
class Objective:
    """One training with the settings drawn, which reports its dev metric after every part."""

    request: "Request"
    prepared: "PreparedData"
    device: str
    """Opened by each trial, whose precision may be its own."""
    teacher: "Teacher | None"
    space: Space

    def __call__(self, trial: Any) -> float:
        import optuna

        from model.device import open_device
        from model.finetuning.fit import train_first_rate

        settings = self.request.settings
        drawn = search_space.make_settings(search_space.draw_settings(trial, self.space))
        drawn["learning_rates"] = tuple(drawn.get("learning_rates", settings.learning_rates))
        request = replace(self.request, settings=replace(settings, **drawn))
        request.check()
        report = make_reporter(trial, f"dev_{request.task.metrics[0]}")
        device = open_device(self.device, request.settings.precision)
        attempt = train_first_rate(request, self.prepared, device, self.teacher, report)
        if attempt.diverged:
            raise optuna.TrialPruned
        return attempt.rank_key()[0]


def make_reporter(trial: Any, metric: str) -> Callable[[float, dict[str, Any]], None]:
    """Return a function that tells the trial its scores, and ends it where it falls behind."""
    import optuna

    reported: set[int] = set()

    def report(share: float, numbers: dict[str, Any]) -> None:
        part = math.floor(PARTS * share + 1e-9)
        if part == 0 or part in reported:
            return
        reported.add(part)
        trial.report(numbers[metric], part)
        if share < 1 and trial.should_prune():
            raise optuna.TrialPruned

    return report


def _write_results(study: Any, metric: str, output: Path) -> dict[str, Any]:
    """Write trials.json and best.json; return the best."""
    trials = [
        {
            "number": number,
            "state": trial.state.name.lower(),
            "settings": search_space.make_settings(trial.params),
            f"dev_{metric}": trial.value,
        }
        for number, trial in enumerate(_list_finished_trials(study))
    ]
    write_json(output / "trials.json", trials)
    states = [trial["state"] for trial in trials]
    if "complete" not in states:
        raise UserError(
            f"none of the {len(trials)} trials came to an end: give lower learning rates in the "
            "space"
        )
    best = {
        "settings": search_space.make_settings(study.best_params),
        f"dev_{metric}": study.best_value,
        "trials": len(trials),
        "pruned": states.count("pruned"),
        "complete": states.count("complete"),
    }
    write_json(output / "best.json", best)
    return best


if __name__ == "__main__":
    main(run)
