"""Searches fine-tuning settings on dev with Optuna: trials that fall behind are pruned, a killed search goes on.

`python -m model.finetuning.search` takes what model.finetune takes, and --space FILE: JSON of setting → choices, or
{"low", "high", "log"}. The test split is never looked at.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.command import UserMistake, main
from model.finetune import parser as finetune_parser
from model.finetune import settings_of
from model.finetuning.config import FinetuningSettings
from model.finetuning.tasks import find
from model.json_file import write_json


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = finetune_parser()
    parser.prog, parser.description = "python -m model.finetuning.search", __doc__
    parser.add_argument("--space", required=True, type=Path, metavar="FILE", help="JSON: setting → choices or range")
    parser.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args(argv)
    space = json.loads(arguments.space.read_text())
    task = find(arguments.task, arguments.data)
    optuna = _optuna()
    from model.finetuning.fit import Start, prepare

    start = Start(arguments.encoder, arguments.architecture, arguments.teacher)
    settings = settings_of(arguments)
    prepared = prepare(start, task, arguments.data, settings, arguments.seed)
    arguments.output.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        direction="maximize",
        storage=f"sqlite:///{arguments.output.resolve()}/optuna.db",
        study_name="search",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=arguments.seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    finished = [t for t in study.trials if t.state.is_finished()]
    objective = _objective(start, task, prepared, settings, space, arguments.seed, arguments.device)
    study.optimize(objective, n_trials=max(0, arguments.trials - len(finished)))
    return _write(study, task.metrics[0], arguments.output)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserMistake("a search needs optuna: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _objective(
    start: Any, task: Any, prepared: Any, settings: FinetuningSettings, space: dict[str, Any], seed: int, device: str
) -> Any:
    """One trial is one training with the settings drawn; its dev metric is told after every evaluation."""
    import optuna

    from model.finetuning.fit import train_once

    def objective(trial: Any) -> float:
        drawn = {name: _draw(trial, name, choices) for name, choices in space.items()}
        found = _as_settings(drawn)
        found["learning_rates"] = tuple(found.get("learning_rates", settings.learning_rates))
        chosen = replace(settings, **found)

        def report(step: int, numbers: dict[str, Any]) -> None:
            trial.report(numbers[f"dev_{task.metrics[0]}"], step)
            if trial.should_prune():
                raise optuna.TrialPruned

        attempt = train_once(start, task, prepared, chosen, seed, device, report)
        return attempt.rank()[0]

    return objective


def _draw(trial: Any, name: str, choices: Any) -> Any:
    if isinstance(choices, list):
        return trial.suggest_categorical(name, choices)
    low, high = choices["low"], choices["high"]
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=bool(choices.get("log")))
    return trial.suggest_float(name, float(low), float(high), log=bool(choices.get("log")))


def _as_settings(drawn: dict[str, Any]) -> dict[str, Any]:
    """`learning_rate` is the grid of one."""
    settings = dict(drawn)
    if "learning_rate" in settings:
        settings["learning_rates"] = [settings.pop("learning_rate")]
    for name in settings:
        if name not in FinetuningSettings.__dataclass_fields__:
            raise UserMistake(f"search: space: no setting {name!r}")
    return settings


def _write(study: Any, metric: str, output: Path) -> dict[str, Any]:

    trials = [
        {
            "number": t.number,
            "state": t.state.name.lower(),
            "settings": _as_settings(t.params),
            f"dev_{metric}": t.value,
        }
        for t in study.trials
    ]
    states = [t["state"] for t in trials]
    best = {"settings": _as_settings(study.best_params), f"dev_{metric}": study.best_value, "trials": len(trials)}
    best |= {"pruned": states.count("pruned"), "complete": states.count("complete")}
    write_json(output / "trials.json", trials)
    write_json(output / "best.json", best)
    return best


if __name__ == "__main__":
    main(run)
