"""Where the lines cross: the gain of one arm over another against pre-training tokens and against labels."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from model.evaluation import charts, labels
from model.evaluation.document import Block, Figure, Heading, Paragraph, Table
from model.evaluation.metrics import METRICS
from model.evaluation.results import Difference
from model.evaluation.sections import change, difference_range, in_percent, title_of

Point = tuple[float, Difference]
"""Labels or tokens, and what was found there."""


def crossing_blocks(study: Mapping[str, Any], differences: Sequence[Difference]) -> list[Block]:
    """Nothing where no comparison was made at two sizes."""
    blocks = []
    for lines, unit in ((by_labels(study, differences), "labels"), (by_tokens(study, differences), "tokens")):
        of_metric: dict[str, dict[str, list[Point]]] = {}
        for name, points in lines.items():
            of_metric.setdefault(points[0][1].comparison.metric, {})[name] = points
        for metric, shown in of_metric.items():
            blocks += _blocks(metric, shown, unit)
    return [Heading("Where the lines cross"), *blocks] if blocks else []


def by_labels(study: Mapping[str, Any], differences: Sequence[Difference]) -> dict[str, list[Point]]:
    """Tasks that differ in n_train are points of one line for each pair of arms."""
    places = {
        task: (line, float(n))
        for line, named in labels.lines(study.get("tasks", [])).items()
        for n, task in named.items()
    }
    lines: dict[str, list[Point]] = {}
    for d in differences:
        if d.task in places:
            line, n = places[d.task]
            lines.setdefault(f"{line}: {d.a} − {d.b}", []).append((n, d))
    return _of_several(lines)


def by_tokens(study: Mapping[str, Any], differences: Sequence[Difference]) -> dict[str, list[Point]]:
    """Arms of the same recipe for different numbers of tokens, against one without pre-training, are one line."""
    arms = {arm["name"]: arm for arm in study.get("arms", [])}
    lines: dict[str, list[Point]] = {}
    for d in differences:
        a, b = arms.get(d.a, {}), arms.get(d.b, {})
        if a.get("tokens") and a.get("recipe") and not b.get("tokens"):
            lines.setdefault(f"{d.task}: {a['recipe']} − {d.b}", []).append((float(a["tokens"]), d))
    return _of_several(lines)


def _of_several(lines: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    ordered = {name: sorted(points, key=lambda point: point[0]) for name, points in lines.items()}
    return {name: points for name, points in ordered.items() if len({x for x, _ in points}) > 1}


def _blocks(metric: str, lines: Mapping[str, list[Point]], unit: str) -> list[Block]:
    scale = 100 if in_percent(metric) else 1
    drawn = {
        name: [(x, (scale * c.difference, scale * c.low, scale * c.high)) for x, d in points for c in [d.comparison]]
        for name, points in lines.items()
    }
    along = "training examples" if unit == "labels" else "pre-training tokens"
    svg = charts.gains(drawn, along, f"gain in {title_of(metric)}" + (" (points)" if scale == 100 else ""))
    rows = [
        (name, f"{x:,.0f}", change(metric, d.comparison.difference), difference_range(d.comparison), d.finding)
        for name, points in lines.items()
        for x, d in points
    ]
    blocks: list[Block] = [Figure(svg, f"Gain against {along}; the dashed line is no gain")] if svg else []
    blocks += [Paragraph(in_words(name, points, unit)) for name, points in lines.items()]
    return [*blocks, Table(("comparison", unit, "gain", "95% interval", "finding"), rows)]


def in_words(name: str, points: Sequence[Point], unit: str) -> str:
    """Where the gain changes its sign, and between which sizes there is evidence of one."""
    sign = 1 if METRICS[points[0][1].comparison.metric].better == "higher" else -1
    at = [(x, sign * d.comparison.difference) for x, d in points]
    where = [f"{x:,.0f}" for x in crossings(at)]
    if where:
        crossing = f"the lines cross near {' and '.join(where)} {unit}"
    else:
        side = "above" if all(y > 0 for _, y in at) else "at or below"
        crossing = f"the lines do not cross: the gain stays {side} zero from {at[0][0]:,.0f} to {at[-1][0]:,.0f} {unit}"
    told = {word: [f"{x:,.0f}" for x, d in points if d.comparison.evidence and sign * d.comparison.difference * way > 0]
            for word, way in (("gain", 1), ("loss", -1))}  # fmt: skip
    evidence = [f"evidence of a {word} at {', '.join(places)} {unit}" for word, places in told.items() if places]
    return f"{name}: {crossing}; {' and '.join(evidence) or 'at none of them is there evidence of a difference'}."


def crossings(points: Sequence[tuple[float, float]]) -> list[float]:
    """Where a line through the points, drawn over the logarithm of x, goes through zero."""
    found = []
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        if y * next_y < 0:
            share = y / (y - next_y)
            found.append(math.exp(math.log(x) + share * (math.log(next_x) - math.log(x))))
    return found
