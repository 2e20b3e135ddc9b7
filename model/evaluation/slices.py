"""Results broken down by what is known of the examples: length, stars, category, whether there is an answer."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model.evaluation.metrics import METRICS
from model.evaluation.predictions import Predictions
from model.evaluation.significance import interval
from model.finetuning.examples import Example, Task

SMALLEST = 20
"""Examples of a part; smaller ones are left out."""
SAMPLES = 400
"""Bootstrap samples of a part, of which there are many: its interval need not be as fine as the whole's."""
OF_SEVERAL_CLASSES = ("macro_f1", "f1", "matthews")
"""Say nothing of examples that are all of one class."""


def with_what_all_have(said: Predictions, examples: Sequence[Example], task: Task) -> Predictions:
    """Every task has texts of some length; questions have an answer in the passage or none."""
    own: dict[str, list[str | float | None]] = {"words": [_words(example) for example in examples]}
    if task.shape == "span" and not task.always_answered:
        own["answer"] = ["in the text" if example.answers else "none" for example in examples]
    return replace(said, slices={**own, **said.slices})


def _words(example: Example) -> int:
    """Of all that is read."""
    return sum(len(text.split()) for text in (example.text, example.pair or "", *example.choices))


def slices(said: Predictions, names: Sequence[str]) -> dict[str, list[dict]]:
    """Slice → a row for each part: part, n, and each metric's value, low and high where the part can tell it."""
    result: dict[str, list[dict]] = {}
    for name, values in said.slices.items():
        parts = np.array(_parts(values))
        found = [(part, said.take(np.flatnonzero(parts == part))) for part in sorted(set(parts))]
        rows = [{"part": str(part), "n": len(of), **_measured(of, names)} for part, of in found if len(of) >= SMALLEST]
        if len(rows) > 1:
            result[name] = rows
    return result


def _measured(part: Predictions, names: Sequence[str]) -> dict[str, dict[str, float]]:
    told = [name for name in names if name not in OF_SEVERAL_CLASSES or len(set(part.labels)) > 1]
    return {name: interval(METRICS[name], part, samples=SAMPLES) for name in told}


def _parts(values: Sequence[str | float | None]) -> list[str]:
    """Numbers are cut at their quartiles; words stay as they are."""
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < len(values):
        return ["unknown" if v is None else str(v) for v in values]
    edges = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))
    bounds = [-np.inf, *edges, np.inf]
    names = [f"{i + 1}: {_range(low, high)}" for i, (low, high) in enumerate(itertools.pairwise(bounds))]
    return [names[int(np.searchsorted(edges, v, side="left"))] for v in numbers]


def _range(low: float, high: float) -> str:
    if low == -np.inf:
        return f"up to {high:g}"
    return f"over {low:g}" if high == np.inf else f"{low:g} to {high:g}"
