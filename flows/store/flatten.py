"""Nested results and parameters as flat names, as MLflow and people read them."""

import json
from collections.abc import Mapping
from typing import Any


def flatten_parameters(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return texts by dotted names, as MLflow's parameters are."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flatten_parameters(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return found


def flatten_numbers(result: Mapping[str, Any], prefix: str = "") -> dict[str, float | int]:
    """Return every number of a result, nested ones by dotted names; NaN is left out."""
    found: dict[str, float | int] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            found |= flatten_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            found[f"{prefix}{name}"] = value
    return found
