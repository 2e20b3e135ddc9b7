"""Draws the figures of a report as SVG text; without matplotlib there are none."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.report.formats import get_title, is_percentage
from amazon_electra.model.report.inputs import ReportInput
from amazon_electra.model.report.results import Cell, Results

PANELS = 3
CURVES = (
    (r"(?!validation_).*loss", "loss", "Pre-training: losses"),
    (r"validation_.*loss", "loss", "Pre-training: losses on dev reviews"),
)
"""Pattern of the measures in metrics.jsonl, axis and title."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """(x, y) by name."""
    is_logarithmic: bool = False
    """Whether the x of lines is drawn so."""


def draw_panels(panels: Sequence[Panel]) -> str:
    """Return the panels below each other as one `<svg>`; nothing without matplotlib, or panels.

    It has no date, no empty line, and its ids are the same in every run.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    if not panels:
        return ""
    figure = Figure(figsize=(7.0, 3.3 * len(panels)), layout="constrained")
    for axes, panel in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set(title=_escape_math(panel.title), xlabel=panel.x, ylabel=panel.y)
        for name, line in panel.lines.items():
            marker = "o" if len(line) < 12 else None
            axes.plot(*zip(*line, strict=True), label=_escape_math(name), marker=marker)
        if panel.lines:
            axes.legend(frameon=False, fontsize=8)
        if panel.is_logarithmic:
            axes.set_xscale("log")
    return _write_svg(figure)


def _write_svg(figure: Any) -> str:
    """Return a figure as `<svg>` without a date, an empty line or ids that differ between runs."""
    import matplotlib

    with matplotlib.rc_context(
        {"svg.hashsalt": "report", "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    return re.sub(r"\n\s*\n", "\n", svg.strip())


def draw_results(results: Results) -> str:
    """Return the main metric of each arm with its 95% interval, the chosen one in colour, in a
    panel for each of the first PANELS tasks; nothing without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ""
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
    figure = Figure(figsize=(4.6, 0.42 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(rows), squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, best, digits, own) in zip(panels, rows, strict=True):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
        axes.set_title(_escape_math(title), loc="left", fontsize=10)
        axes.set(yticks=[], ylim=(-0.5, len(own) - 0.1))
        for place, (arm, of) in enumerate(own):
            color = "#0b5cad" if arm == best else "#777"
            error = [[of["value"] - of["low"]], [of["high"] - of["value"]]]
            axes.errorbar(of["value"], place, xerr=error, fmt="o", capsize=3, color=color)
            label = f"{_escape_math(arm)}  {of['value']:{digits}}"
            where = axes.get_yaxis_transform()
            axes.text(0, place + 0.25, label, transform=where, fontsize=9, color=color)
    return _write_svg(figure)


def _escape_math(name: str) -> str:
    """Return a name that matplotlib draws as it is; text between two $ would be mathematics."""
    return name.replace("$", r"\$")


def draw_training(study: ReportInput, base: Path, results: Results) -> str:
    """Return the losses of pre-training, and the main metric on dev while
    fine-tuning (first task, first seed).
    """
    logs = {entry.name: read_lines(base / entry.metrics) for entry in study.pretraining}
    panels = []
    for pattern, axis, title in CURVES:
        lines = {
            f"{name}: {measure.replace('_', ' ')}": [
                (line["step"], line[measure]) for line in log if measure in line
            ]
            for name, log in logs.items()
            for measure in sorted({measure for line in log for measure in line})
            if re.fullmatch(pattern, measure)
        }
        if lines:
            panels.append(Panel(title, "step", axis, lines))
    task = results.tasks[0]
    metric = results.get_main_metric(task)
    learning = {
        arm: line
        for arm in results.arms
        if (cells := results.list_cells(arm, task))
        and len(line := read_learning_curve(cells[0], metric)) > 1
    }
    if learning:
        title = f"Fine-tuning: {get_title(metric)} on dev of {task}, first seed"
        panels.append(Panel(title, "step", get_title(metric), learning))
    return draw_panels(panels)


def read_learning_curve(cell: Cell, metric: str) -> list[tuple[float, float]]:
    """Return (step, metric on dev) with the chosen learning rate, from its own first step on."""
    lines = read_lines(cell.finetuned / "metrics.jsonl")
    rate = cell.about.get("learning_rate")
    kept = [line for line in lines if line.get("peak_learning_rate") == rate]
    before = [line["step"] for line in lines if kept and line["attempt"] < kept[0]["attempt"]]
    begun, name = max(before, default=0), f"dev_{metric}"
    return [(line["step"] - begun, line[name]) for line in kept if name in line]


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a JSON Lines file; none where it is missing."""
    if not file.is_file():
        return []
    return [
        json.loads(line)
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.endswith("}")
    ]
