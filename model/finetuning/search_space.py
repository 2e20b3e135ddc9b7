"""Read what a search draws from (setting → choices, or a range) and draw from it with Optuna."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import describe_unknown, format_value, replace_settings
from model.config import FinetuningSettings

Space = Mapping[str, Any]
"""Setting → list of choices, or {"low", "high", "log"}; `learning_rate` is a grid of one."""

DATA_SETTINGS = (
    "max_length",
    "stride",
    "n_train",
    "n_dev",
    "n_test",
    "sampling",
    "balanced_test",
    "sample_seed",
    "clean",
)
"""Settings of the examples, which are read and tokenized once: every trial must meet the same ones.
"""
TEACHER_SETTINGS = ("temperature", "soft_weight", "hidden_weight", "attention_weight")


EXAMPLE = '{"batch": [16, 32], "learning_rate": {"low": 1e-4, "high": 3e-3, "log": true}}'


def read_space(file: Path, distils: bool) -> Space:
    """Read the space from a JSON file; `distils` says whether there is a teacher."""
    try:
        space = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--space {file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UserError(f"--space {file}: not JSON: {error}") from None
    if not isinstance(space, dict) or not space:
        raise UserError(
            f"--space {file}: write an object of setting → choices or range, such as {EXAMPLE}"
        )
    for mistake in find_mistakes(space, distils):
        raise UserError(f"--space {file}: {mistake}")
    return space


def find_mistakes(space: Space, distils: bool) -> Iterator[str]:
    """Yield each mistake of the space; the text begins with its setting."""
    for name, choices in space.items():
        mistake = _check_name(name, distils) or _check_choices(name, choices)
        if mistake:
            yield f"{name}: {mistake}"


def _check_name(name: str, distils: bool) -> str:
    if name == "learning_rates":
        return "a trial has one rate: write learning_rate"
    if name in DATA_SETTINGS:
        return "has no effect in a search, whose trials all meet the same examples: set it for all"
    if name in TEACHER_SETTINGS and not distils:
        return "has no effect without a teacher"
    if name != "learning_rate" and name not in FinetuningSettings.__dataclass_fields__:
        known = [
            n
            for n in FinetuningSettings.__dataclass_fields__
            if n not in (*DATA_SETTINGS, "learning_rates")
        ]
        return describe_unknown(name, ["learning_rate", *known])
    return ""


def _check_choices(name: str, choices: Any) -> str:
    if isinstance(choices, list) and choices:
        return _check_values(name, choices)
    if not isinstance(choices, dict) or not {"low", "high"} <= choices.keys() <= {
        "low",
        "high",
        "log",
    }:
        return "give a list of choices, or {low, high, log}"
    low, high = choices["low"], choices["high"]
    if (
        any(isinstance(end, bool) or not isinstance(end, int | float) for end in (low, high))
        or low > high
    ):
        return "low and high must be numbers, low the smaller one"
    if choices.get("log") and low <= 0:
        return "low must be above 0 where it is drawn on a logarithmic scale"
    return _check_values(name, [low, high])


def _check_values(name: str, values: list[Any]) -> str:
    """Return why fine-tuning refuses one of the values; empty if it takes them all."""
    setting = "learning_rates" if name == "learning_rate" else name
    try:
        for value in values:
            replace_settings([FinetuningSettings()], {setting: format_value(value)}, "finetuning")
    except UserError as mistake:
        return str(mistake)
    return ""


def drop_teacher_settings(space: Space) -> dict[str, Any]:
    """Return the space without the settings that only a teacher gives an effect."""
    return {name: choices for name, choices in space.items() if name not in TEACHER_SETTINGS}


def draw_settings(trial: Any, space: Space) -> dict[str, Any]:
    return {name: _draw_value(trial, name, choices) for name, choices in space.items()}


def _draw_value(trial: Any, name: str, choices: Any) -> Any:
    if isinstance(choices, list):
        return trial.suggest_categorical(name, choices)
    low, high = choices["low"], choices["high"]
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=bool(choices.get("log")))
    return trial.suggest_float(name, float(low), float(high), log=bool(choices.get("log")))


def make_settings(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings drawn, `learning_rate` as a grid of one."""
    settings = dict(drawn)
    if "learning_rate" in settings:
        settings["learning_rates"] = [settings.pop("learning_rate")]
    return settings
