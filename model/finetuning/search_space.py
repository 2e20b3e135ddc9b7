"""What a search draws from: setting → choices, or a range; read with its mistakes named, drawn by Optuna."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.finetuning.config import FinetuningSettings

Space = Mapping[str, Any]
"""Setting → list of choices, or {"low", "high", "log"}; `learning_rate` is a grid of one."""

OF_DATA = ("max_length", "stride", "n_train", "n_dev", "n_test", "sampling", "balanced_test", "sample_seed", "clean")
"""Settings of the examples, which are read and tokenized once: every trial must meet the same ones."""
OF_TEACHER = ("temperature", "soft_weight", "hidden_weight", "attention_weight")


EXAMPLE = '{"batch": [16, 32], "learning_rate": {"low": 1e-4, "high": 3e-3, "log": true}}'


def read(file: Path, distils: bool) -> Space:
    """`distils`: whether there is a teacher."""
    try:
        space = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserMistake(f"--space {file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UserMistake(f"--space {file}: not JSON: {error}") from None
    if not isinstance(space, dict) or not space:
        raise UserMistake(f"--space {file}: write an object of setting → choices or range, such as {EXAMPLE}")
    for mistake in mistakes(space, distils):
        raise UserMistake(f"--space {file}: {mistake}")
    return space


def mistakes(space: Space, distils: bool) -> Iterator[str]:
    """Each begins with its setting."""
    for name, choices in space.items():
        mistake = _of_name(name, distils) or _of_choices(name, choices)
        if mistake:
            yield f"{name}: {mistake}"


def _of_name(name: str, distils: bool) -> str:
    if name == "learning_rates":
        return "a trial has one rate: write learning_rate"
    if name in OF_DATA:
        return "has no effect in a search, whose trials all meet the same examples: set it for all"
    if name in OF_TEACHER and not distils:
        return "has no effect without a teacher"
    if name != "learning_rate" and name not in FinetuningSettings.__dataclass_fields__:
        known = [n for n in FinetuningSettings.__dataclass_fields__ if n not in (*OF_DATA, "learning_rates")]
        return f"no such setting; there are {', '.join(['learning_rate', *known])}"
    return ""


def _of_choices(name: str, choices: Any) -> str:
    if isinstance(choices, list) and choices:
        return _refused(name, choices)
    if not isinstance(choices, dict) or not {"low", "high"} <= choices.keys() <= {"low", "high", "log"}:
        return "give a list of choices, or {low, high, log}"
    low, high = choices["low"], choices["high"]
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in (low, high)) or low > high:
        return "low and high must be numbers, low the smaller one"
    if choices.get("log") and low <= 0:
        return "low must be above 0 where it is drawn on a logarithmic scale"
    return _refused(name, [low, high])


def _refused(name: str, values: list[Any]) -> str:
    """What fine-tuning says to one of the values; nothing if it takes them all."""
    setting = "learning_rates" if name == "learning_rate" else name
    try:
        for value in values:
            text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            replace(FinetuningSettings(), **{setting: FinetuningSettings.parse(setting, text)})
    except UserMistake as mistake:
        return str(mistake).removeprefix("fine-tuning: ")
    return ""


def without_teacher(space: Space) -> dict[str, Any]:
    """What is left of it for an arm that nobody teaches."""
    return {name: choices for name, choices in space.items() if name not in OF_TEACHER}


def draw(trial: Any, space: Space) -> dict[str, Any]:
    return {name: _drawn(trial, name, choices) for name, choices in space.items()}


def _drawn(trial: Any, name: str, choices: Any) -> Any:
    if isinstance(choices, list):
        return trial.suggest_categorical(name, choices)
    low, high = choices["low"], choices["high"]
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=bool(choices.get("log")))
    return trial.suggest_float(name, float(low), float(high), log=bool(choices.get("log")))


def as_settings(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """`learning_rate` is the grid of one."""
    settings = dict(drawn)
    if "learning_rate" in settings:
        settings["learning_rates"] = [settings.pop("learning_rate")]
    return settings
