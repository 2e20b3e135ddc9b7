"""The few numbers that sum up a stage in a line, of the terminal, the log and Prefect's pages."""

from collections.abc import Mapping
from typing import Any

from amazon_electra.flows.store.flatten import flatten_numbers
from amazon_electra.flows.store.stage import find_class


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
