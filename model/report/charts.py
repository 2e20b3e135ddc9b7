"""Draws a figure of the report as SVG text. Without matplotlib there are no figures."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Interval = tuple[float, float, float]
"""Value, low, high."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes: lines, or points with intervals."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """(x, y) by name."""
    points: Sequence[tuple[str, float, Interval]] = ()
    """(name, x, (y, low, high)), over the logarithm of x."""
    levels: Sequence[tuple[str, float]] = ()
    """(name, y) of what has no x: dashed lines across."""


def draw_panels(panels: Sequence[Panel]) -> str | None:
    """Return the panels below each other as one `<svg>`; None without matplotlib.

    It has no date, and its ids are the same in every run.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return None
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
        for name, level in panel.levels:
            axes.axhline(level, color="#777", linewidth=1, linestyle="--")
            place = axes.get_yaxis_transform()
            label = _escape_math(name)
            axes.text(0.01, level, label, transform=place, fontsize=8, color="#555", va="bottom")
        for name, x, (value, low, high) in panel.points:
            error = [[value - low], [high - value]]
            bar = axes.errorbar(x, value, yerr=error, fmt="o", capsize=3)
            color = bar.lines[0].get_color()
            axes.annotate(
                _escape_math(name),
                (x, value),
                xytext=(6, 4),
                textcoords="offset points",
                fontsize=8,
                color=color,
            )
        if panel.points:
            axes.set_xscale("log")
            axes.margins(x=0.15)
    with matplotlib.rc_context(
        {"svg.hashsalt": "report", "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)


def _escape_math(name: str) -> str:
    """Return a name that matplotlib draws as it is; text between two $ would be mathematics."""
    return name.replace("$", r"\$")
