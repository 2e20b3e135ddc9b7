"""Draws the picture of a report as SVG text; without matplotlib there is none."""

import io
import re
from typing import Any

from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.report.formats import get_title, is_percentage
from amazon_electra.model.report.results import Results

PANELS = 3


def draw_results(results: Results) -> str:
    """Return the main metric of each arm with its 95% interval, the best arm in colour, in a panel
    for each of the first PANELS tasks, as `<svg>` without a date or ids that differ between runs.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    tasks = results.tasks[:PANELS]
    heights = [sum(bool(results.list_cells(a, t)) for a in results.arms) + 1.2 for t in tasks]
    figure = Figure(figsize=(4.6, 0.42 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(tasks), squeeze=False, height_ratios=heights)[:, 0]
    for axes, task in zip(panels, tasks, strict=True):
        metric = results.get_main_metric(task)
        scale, unit, digits = (100, " (%)", ".1f") if is_percentage(metric) else (1, "", ".3f")
        found = [(arm, results.pool_metrics(arm, task).get(metric)) for arm in results.arms]
        own = [(arm, {n: scale * v for n, v in of.items()}) for arm, of in found if of]
        own.sort(key=lambda one: one[1]["value"], reverse=METRICS[metric].better == "lower")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
        title, best = f"{task}: {get_title(metric)}{unit}", results.find_best_arm(task)
        axes.set_title(escape_math(title), loc="left", fontsize=10)
        axes.set(yticks=[], ylim=(-0.5, len(own) - 0.1))
        for place, (arm, of) in enumerate(own):
            color = "#0b5cad" if arm == best else "#777"
            error = [[of["value"] - of["low"]], [of["high"] - of["value"]]]
            axes.errorbar(of["value"], place, xerr=error, fmt="o", capsize=3, color=color)
            label = f"{escape_math(arm)}  {of['value']:{digits}}"
            where = axes.get_yaxis_transform()
            axes.text(0, place + 0.25, label, transform=where, fontsize=9, color=color)
    buffer = io.StringIO()
    style: Any = {"svg.hashsalt": "report", "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(style):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    return re.sub(r"\n\s*\n", "\n", svg.strip())


def escape_math(name: str) -> str:
    """Return a name that matplotlib draws as it is; text between two $ would be mathematics."""
    return name.replace("$", r"\$")
