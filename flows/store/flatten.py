"""Nested results and parameters as flat names, as MLflow and people read them, and in a line."""

import json
from collections.abc import Mapping
from typing import Any

from amazon_electra.flows.store.stage import find_class


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


def summarize_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the headline numbers of a stage, and how many records were dropped in all."""
    numbers = flatten_numbers(manifest["result"])
    kind = find_class(manifest["stage"])
    headlines = (kind and kind.headline) or list(numbers)[:4]
    parts = [
        f"{value:,} {n.removesuffix('s') if value == 1 else n}"
        if isinstance(value, int)
        else f"{value:,.4g} {n}"
        for name in headlines
        if (value := numbers.get(name)) is not None
        and (n := name.removeprefix("metrics.").removesuffix(".value"))
    ]
    dropped = [value for name, value in numbers.items() if name.startswith("dropped.")]
    parts += [f"{sum(dropped):,} dropped"] if dropped else []
    return ", ".join(parts)
