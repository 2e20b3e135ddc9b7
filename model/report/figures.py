"""Draws the figures of a report as SVG text; without matplotlib there are none."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.report.formats import get_title, is_percentage
from amazon_electra.model.report.results import Results

PANELS = 3
Line = Sequence[tuple[float, float]]
"""Points (labels, value) of an arm."""


def draw_results(results: Results) -> str:
    """Return the main metric of each arm with its 95% interval, the best arm in colour, in a panel
    for each of the first PANELS tasks.
    """
    rows = []
    for task in results.tasks[:PANELS]:
        metric = results.get_main_metric(task)
        scale = 100 if is_percentage(metric) else 1
        found = [(arm, results.pool_metrics(arm, task).get(metric)) for arm in results.arms]
        own = [(arm, {n: scale * v for n, v in of.items()}) for arm, of in found if of]
        own.sort(key=lambda one: one[1]["value"], reverse=METRICS[metric].better == "lower")
        title = f"{task}: {get_title(metric)}{' (%)' if scale == 100 else ''}"
        rows.append((title, results.find_best_arm(task), ".1f" if scale == 100 else ".3f", own))
    heights = [len(own) + 1.2 for *_, own in rows]
    figure = open_figure((4.6, 0.42 * sum(heights)))
    if figure is None:
        return ""
    panels = figure.subplots(len(rows), squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, best, digits, own) in zip(panels, rows, strict=True):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
        axes.set_title(escape_math(title), loc="left", fontsize=10)
        axes.set(yticks=[], ylim=(-0.5, len(own) - 0.1))
        for place, (arm, of) in enumerate(own):
            color = "#0b5cad" if arm == best else "#777"
            error = [[of["value"] - of["low"]], [of["high"] - of["value"]]]
            axes.errorbar(of["value"], place, xerr=error, fmt="o", capsize=3, color=color)
            label = f"{escape_math(arm)}  {of['value']:{digits}}"
            where = axes.get_yaxis_transform()
            axes.text(0, place + 0.25, label, transform=where, fontsize=9, color=color)
    return write_svg(figure)


def draw_label_curve(panels: Sequence[tuple[str, str, Mapping[str, Line]]]) -> str:
    """Return a panel for each title, metric and lines of the arms, below each other."""
    figure = open_figure((7.0, 3.3 * len(panels)))
    if figure is None:
        return ""
    places = figure.subplots(len(panels), squeeze=False)[:, 0]
    for axes, (title, metric, lines) in zip(places, panels, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set(title=escape_math(title), xlabel="labels", ylabel=metric, xscale="log")
        for name, line in lines.items():
            axes.plot(*zip(*line, strict=True), label=escape_math(name), marker="o")
        if lines:
            axes.legend(frameon=False, fontsize=8)
    return write_svg(figure)


def open_figure(size: tuple[float, float]) -> Any:
    """Return an empty figure of this size, in inches; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=size, layout="constrained")


def write_svg(figure: Any) -> str:
    """Return a figure as `<svg>` without a date, an empty line or ids that differ between runs."""
    import matplotlib

    with matplotlib.rc_context(
        {"svg.hashsalt": "report", "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    return re.sub(r"\n\s*\n", "\n", svg.strip())


def escape_math(name: str) -> str:
    """Return a name that matplotlib draws as it is; text between two $ would be mathematics."""
    return name.replace("$", r"\$")
