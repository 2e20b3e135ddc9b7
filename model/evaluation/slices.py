"""Breaks results down by properties of the examples: length, stars, category, answer or none."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model.evaluation.metrics import METRICS
from model.evaluation.predictions import Predictions
from model.evaluation.significance import compute_interval
from model.finetuning.examples import Example, Task

SMALLEST_PART = 20
"""Examples; parts with fewer are left out."""
SLICE_SAMPLES = 400
"""Bootstrap samples of a part: there are many parts, whose intervals may be coarser."""
METRICS_OF_SEVERAL_CLASSES = ("macro_f1", "f1", "matthews")
"""Metrics that say nothing about examples of one class."""


def add_common_slices(
    predictions: Predictions, examples: Sequence[Example], task: Task
) -> Predictions:
    """Add the slices that need no data of the task: number of words, and answer or none."""
    own: dict[str, list[str | float | None]] = {"words": [_count_words(e) for e in examples]}
    if task.shape == "span" and not task.always_answered:
        own["answer"] = ["in the text" if example.answers else "none" for example in examples]
    return replace(predictions, slices={**own, **predictions.slices})


def _count_words(example: Example) -> int:
    """Count the words of all texts of an example."""
    return sum(len(text.split()) for text in (example.text, example.pair or "", *example.choices))


def measure_slices(predictions: Predictions, names: Sequence[str]) -> dict[str, list[dict]]:
    """Return for each slice a row per part: part, n, and each metric's value, low and high.

    Parts of fewer than SMALLEST_PART examples and slices of one part are left out.
    """
    rows_of: dict[str, list[dict]] = {}
    for name, values in predictions.slices.items():
        parts = np.array(_assign_parts(values))
        groups = {p: predictions.take_rows(np.flatnonzero(parts == p)) for p in np.unique(parts)}
        rows = [
            {"part": str(part), "n": len(group), **_measure_part(group, names)}
            for part, group in groups.items()
            if len(group) >= SMALLEST_PART
        ]
        if len(rows) > 1:
            rows_of[name] = rows
    return rows_of


def _measure_part(part: Predictions, names: Sequence[str]) -> dict[str, dict[str, float]]:
    measurable = [
        name
        for name in names
        if name not in METRICS_OF_SEVERAL_CLASSES or len(set(part.labels)) > 1
    ]
    return {n: compute_interval(METRICS[n], part, samples=SLICE_SAMPLES) for n in measurable}


def _assign_parts(values: Sequence[str | float | None]) -> list[str]:
    """Return the part of each value: numbers are cut at their quartiles, words are parts."""
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < len(values):
        return ["unknown" if v is None else str(v) for v in values]
    edges = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))
    bounds = [-np.inf, *edges, np.inf]
    names = [
        f"{i + 1}: {_format_range(low, high)}"
        for i, (low, high) in enumerate(itertools.pairwise(bounds))
    ]
    return [names[int(np.searchsorted(edges, v, side="left"))] for v in numbers]


def _format_range(low: float, high: float) -> str:
    if low == -np.inf:
        return f"up to {high:g}"
    return f"over {low:g}" if high == np.inf else f"{low:g} to {high:g}"
