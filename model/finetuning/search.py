"""Search fine-tuning settings on dev with Optuna; trials that fall behind are pruned."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amazon_electra.beam_jobs.core.errors import UserError, refuse, require
from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.core.settings import format_value, list_valid
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.evaluation.metrics import rank_dev_metrics
from amazon_electra.model.finetuning.config import FinetuneConfig, check_request, make_request
from amazon_electra.model.finetuning.request import DISTILLATION_FIELDS, change_settings
from amazon_electra.model.results import SearchResult

if TYPE_CHECKING:
    from amazon_electra.model.finetuning.fit import FineTuning

Space = Mapping[str, Any]
"""Setting → list of choices, or {"low", "high", "log"}; `learning_rate` is a grid of one."""

DATA_SETTINGS = (
    *("max_length", "stride", "n_train", "n_dev", "n_test"),
    *("sampling", "balanced_test"),
)
"""Settings of the examples, which are tokenized once: every trial must meet the same ones."""
STARTUP_TRIALS = 4
"""Trials that run to their end before any is pruned."""
PARTS = 5
"""Shares of a training after which trials are compared: a step is another place in each."""


def search(
    config: FinetuneConfig,
    space: Space,
    trials: int,
    data: str | Path,
    output: str | Path,
    *,
    encoder: str | Path | None = None,
    architecture: str | Path | None = None,
    cache: str | Path | None = None,
    device: str = "auto",
) -> SearchResult:
    """Try settings of a fine-tuning and return the best on dev; `output` gets best.json and
    optuna.db, Optuna's database of all trials. `space` maps a setting to choices, or to {"low",
    "high", "log"}.
    """
    for mistake in validate_space(space):
        raise UserError(f"space: {mistake}")
    data, output = Path(data), Path(output)
    request = make_request(config, data, encoder=encoder, architecture=architecture, cache=cache)
    with refuse(ImportError, message="a search needs optuna: pip install optuna"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    from amazon_electra.model.device import open_device
    from amazon_electra.model.finetuning.fit import load_tuning

    check_request(request)
    make_writable_folder("output", output)
    tuning = load_tuning(request, open_device(device, request.settings.precision))
    study = optuna.create_study(
        direction="maximize",
        storage=f"sqlite:///{output.resolve()}/optuna.db",
        study_name="search",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
    )
    # one that was killed is drawn anew, from the same numbers
    for number in range(len(list_finished_trials(study)), trials):
        study.sampler = optuna.samplers.TPESampler(seed=(config.seed + number) % 2**32)
        study.optimize(lambda trial: run_trial(trial, tuning, device, space), n_trials=1)
    states = [trial.state.name for trial in list_finished_trials(study)]
    require("COMPLETE" in states, "no trial came to an end: lower the rates", "space")
    found = {f"dev_{request.task.metrics[0]}": study.best_value, "trials": len(states)}
    counts = {name.lower(): states.count(name) for name in ("PRUNED", "COMPLETE")}
    best = {"settings": make_settings(study.best_params)} | found | counts
    write_json(output / "best.json", best)
    return SearchResult.of(best)


def list_finished_trials(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.is_finished()]


def run_trial(trial: Any, tuning: "FineTuning", device: str, space: Space) -> float:
    import optuna

    from amazon_electra.model.device import open_device

    request = tuning.request
    drawn = make_settings(draw_settings(trial, space))
    request = replace(request, settings=request.settings.replace(**drawn))
    check_request(request)
    opened = open_device(device, request.settings.precision)
    own = replace(tuning, request=request, device=opened)
    compare, steps = make_reporter(trial, request.task.metrics[0]), own.plan_training().steps
    rate = request.settings.learning_rates[0]
    _, attempt = own.train(rate, report=lambda step, numbers: compare(step / steps, numbers))
    if attempt.diverged:
        raise optuna.TrialPruned
    return rank_dev_metrics(attempt.dev)[0]


def make_reporter(trial: Any, metric: str) -> Callable[[float, dict[str, Any]], None]:
    """Return a function that reports scores to the trial, and ends it where it falls behind."""
    import optuna

    reported: set[int] = set()

    def report(share: float, numbers: dict[str, Any]) -> None:
        part = math.floor(PARTS * share + 1e-9)
        if part == 0 or part in reported:
            return
        reported.add(part)
        trial.report(numbers[f"dev_{metric}"], part)
        if share < 1 and trial.should_prune():
            raise optuna.TrialPruned

    return report


def validate_space(space: Space) -> Iterator[str]:
    """Yield each mistake of the space; the text begins with its setting."""
    for name, choices in space.items():
        try:
            _check_choices(name, choices)
        except UserError as mistake:
            yield f"{name}: {mistake}"


def _check_choices(name: str, choices: Any) -> None:
    """Raise a UserError where a setting cannot be searched, or fine-tuning refuses a choice."""
    unknown = {"learning_rates", *DATA_SETTINGS, *DISTILLATION_FIELDS}
    known = ["learning_rate", *(n for n in FinetuningSettings.model_fields if n not in unknown)]
    require(name in known, list_valid(known))
    values, is_list = choices, isinstance(choices, list) and choices
    if not is_list:
        names = choices.keys() if isinstance(choices, dict) else set()
        is_range = {"low", "high"} <= names <= {"low", "high", "log"}
        require(is_range, "give a list of choices, or {low, high, log}")
        values = low, high = choices["low"], choices["high"]
        are_numbers = all(type(end) in (int, float) for end in values)
        is_ordered = are_numbers and low <= high and (low > 0 or not choices.get("log"))
        require(is_ordered, "low and high must be numbers, low the smaller one, above 0 for log")
    setting = "learning_rates" if name == "learning_rate" else name
    for value in values:
        change_settings(FinetuningSettings(), {setting: format_value(value)})


def draw_settings(trial: Any, space: Space) -> dict[str, Any]:
    """Return what Optuna draws of each setting, whole numbers where both ends are whole."""
    drawn = {}
    for name, choices in space.items():
        if isinstance(choices, list):
            drawn[name] = trial.suggest_categorical(name, choices)
            continue
        low, high = choices["low"], choices["high"]
        are_whole = isinstance(low, int) and isinstance(high, int)
        suggest = trial.suggest_int if are_whole else trial.suggest_float
        drawn[name] = suggest(name, low, high, log=bool(choices.get("log")))
    return drawn


def make_settings(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings drawn, `learning_rate` as a grid of one."""
    rates = {"learning_rates": [drawn["learning_rate"]]} if "learning_rate" in drawn else {}
    return {name: value for name, value in drawn.items() if name != "learning_rate"} | rates
