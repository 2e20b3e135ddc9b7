"""Shows where one arm's gain over another changes sign, against tokens and against labels."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from model.evaluation.metrics import METRICS
from model.report import charts, label_curves
from model.report.document import Block, Figure, Heading, Paragraph, Table
from model.report.results import Difference
from model.report.sections import format_change, format_range, get_title, is_percentage

Point = tuple[float, Difference]
"""Number of labels or tokens, and the difference there."""


def build_crossing_blocks(
    study: Mapping[str, Any], differences: Sequence[Difference]
) -> list[Block]:
    """Return the section, empty where no comparison was made at two sizes."""
    blocks = []
    for lines, unit in (
        (group_by_labels(study, differences), "labels"),
        (group_by_tokens(study, differences), "tokens"),
    ):
        of_metric: dict[str, dict[str, list[Point]]] = {}
        for name, points in lines.items():
            of_metric.setdefault(points[0][1].comparison.metric, {})[name] = points
        for metric, shown in of_metric.items():
            blocks += _build_blocks(metric, shown, unit)
    return [Heading("Where the lines cross"), *blocks] if blocks else []


def group_by_labels(
    study: Mapping[str, Any], differences: Sequence[Difference]
) -> dict[str, list[Point]]:
    """Return a line for each pair of arms, with a point for each number of labels."""
    places = {
        task: (line, float(n))
        for line, named in label_curves.group_label_curves(study.get("tasks", [])).items()
        for n, task in named.items()
    }
    lines: dict[str, list[Point]] = {}
    for d in differences:
        if d.task in places:
            line, n = places[d.task]
            lines.setdefault(f"{line}: {d.a} − {d.b}", []).append((n, d))
    return _keep_lines_of_several_sizes(lines)


def group_by_tokens(
    study: Mapping[str, Any], differences: Sequence[Difference]
) -> dict[str, list[Point]]:
    """Return a line for each recipe of pre-training, with a point for each number of tokens.

    The recipe is compared with an arm without pre-training.
    """
    arms = {arm["name"]: arm for arm in study.get("arms", [])}
    lines: dict[str, list[Point]] = {}
    for d in differences:
        a, b = arms.get(d.a, {}), arms.get(d.b, {})
        if a.get("tokens") and a.get("recipe") and not b.get("tokens"):
            lines.setdefault(f"{d.task}: {a['recipe']} − {d.b}", []).append((float(a["tokens"]), d))
    return _keep_lines_of_several_sizes(lines)


def _keep_lines_of_several_sizes(lines: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    ordered = {name: sorted(points, key=lambda point: point[0]) for name, points in lines.items()}
    return {name: points for name, points in ordered.items() if len({x for x, _ in points}) > 1}


def _build_blocks(metric: str, lines: Mapping[str, list[Point]], unit: str) -> list[Block]:
    scale = 100 if is_percentage(metric) else 1
    drawn = {
        name: [
            (x, (scale * c.difference, scale * c.low, scale * c.high))
            for x, d in points
            for c in [d.comparison]
        ]
        for name, points in lines.items()
    }
    along = "training examples" if unit == "labels" else "pre-training tokens"
    svg = charts.draw_gains(
        drawn, along, f"gain in {get_title(metric)}" + (" (points)" if scale == 100 else "")
    )
    rows = [
        (
            name,
            f"{x:,.0f}",
            format_change(metric, d.comparison.difference),
            format_range(d.comparison),
            d.finding,
        )
        for name, points in lines.items()
        for x, d in points
    ]
    blocks: list[Block] = (
        [Figure(svg, f"Gain against {along}; the dashed line is no gain")] if svg else []
    )
    blocks += [Paragraph(describe_crossing(name, points, unit)) for name, points in lines.items()]
    return [*blocks, Table(("comparison", unit, "gain", "95% interval", "finding"), rows)]


def describe_crossing(name: str, points: Sequence[Point], unit: str) -> str:
    """Say where the gain changes its sign, and at which sizes there is evidence of one."""
    sign = 1 if METRICS[points[0][1].comparison.metric].better == "higher" else -1
    at = [(x, sign * d.comparison.difference) for x, d in points]
    where = [f"{x:,.0f}" for x in find_crossings(at)]
    if where:
        crossing = f"the lines cross near {' and '.join(where)} {unit}"
    else:
        side = "above" if all(y > 0 for _, y in at) else "at or below"
        crossing = (
            f"the lines do not cross: the gain stays {side} zero "
            f"from {at[0][0]:,.0f} to {at[-1][0]:,.0f} {unit}"
        )
    significant = [
        (x, sign * d.comparison.difference) for x, d in points if d.comparison.is_significant
    ]
    evidence = [
        f"evidence of a {word} at {', '.join(places)} {unit}"
        for word, way in (("gain", 1), ("loss", -1))
        if (places := [f"{x:,.0f}" for x, y in significant if y * way > 0])
    ]
    none = "at none of them is there evidence of a difference"
    return f"{name}: {crossing}; {' and '.join(evidence) or none}."


def find_crossings(points: Sequence[tuple[float, float]]) -> list[float]:
    """Return where a line through the points, drawn over the logarithm of x, crosses zero."""
    places = []
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        if y * next_y < 0:
            share = y / (y - next_y)
            places.append(math.exp(math.log(x) + share * (math.log(next_x) - math.log(x))))
    return places
