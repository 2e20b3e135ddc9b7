"""Nested results and parameters as flat names, as MLflow and people read them, and in a line."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.store.stage import find_class


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values by dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def list_changes(form: Settings) -> dict[str, Any]:
    """Return the fields of sections that are not their default, by path."""
    changed = flatten(form.model_dump(exclude_defaults=True))
    return {path.replace(".settings.", "."): value for path, value in changed if "." in path}


def flatten_parameters(values: Mapping[str, Any]) -> dict[str, str]:
    """Return texts by dotted names, as MLflow's parameters are."""
    return {n: v if isinstance(v, str) else json.dumps(v) for n, v in flatten(values)}


def flatten_numbers(result: Mapping[str, Any]) -> dict[str, float | int]:
    """Return every number of a result by dotted names; NaN is left out."""
    numbers = ((n, v) for n, v in flatten(result) if isinstance(v, int | float))
    return {name: v for name, v in numbers if not isinstance(v, bool) and v == v}


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
