"""Draws the report's plots as SVG text for the page. Without matplotlib there are none."""

import io
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points (x, y) by name."""
Interval = tuple[float, float, float]
"""Value, low, high."""


def draw_lines(
    series: Series, x: str, y: str, log_x: bool = False, dashed: Collection[str] = ()
) -> str | None:
    """Draw a line per series; those that others are compared with are `dashed`."""
    figure, axes = _create_figure()
    if figure is None:
        return None
    for name, points in series.items():
        marker = "o" if len(points) < 12 else None
        axes.plot(
            [p[0] for p in points],
            [p[1] for p in points],
            label=_escape_math(name),
            marker=None if name in dashed else marker,
            linestyle="--" if name in dashed else "-",
            linewidth=1.5,
        )
    if log_x:
        axes.set_xscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(frameon=False, fontsize=8)
    return _render_svg(figure)


def draw_intervals(rows: Sequence[tuple[str, Interval]], x: str, zero: bool = False) -> str | None:
    """Draw a point with its interval per row (name, (value, low, high)).

    `zero` adds the line of no difference.
    """
    figure, axes = _create_figure(height=0.8 + 0.4 * len(rows))
    if figure is None:
        return None
    for place, (_, (value, low, high)) in enumerate(reversed(rows)):
        axes.errorbar(
            value, place, xerr=[[value - low], [high - value]], fmt="o", capsize=3, color="#0b5cad"
        )
    axes.set_yticks(range(len(rows)), [_escape_math(name) for name, _ in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    if zero:
        axes.axvline(0, color="#777", linewidth=1, linestyle="--")
    axes.set_xlabel(x)
    return _render_svg(figure)


def draw_gains(
    series: Mapping[str, Sequence[tuple[float, Interval]]], x: str, y: str
) -> str | None:
    """Draw differences with their intervals over the logarithm of x.

    `series` has points (x, (value, low, high)) by name.
    """
    figure, axes = _create_figure()
    if figure is None:
        return None
    for i, (name, along) in enumerate(series.items()):
        xs = [place * 1.02**i for place, _ in along]
        values, lows, highs = zip(*(interval for _, interval in along), strict=True)
        below, above = (
            [v - low for v, low in zip(values, lows, strict=True)],
            [h - v for v, h in zip(values, highs, strict=True)],
        )
        axes.errorbar(
            xs,
            values,
            yerr=[below, above],
            fmt="o-",
            capsize=3,
            linewidth=1.2,
            label=_escape_math(name),
        )
    axes.axhline(0, color="#777", linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(frameon=False, fontsize=8)
    return _render_svg(figure)


def draw_points(
    rows: Sequence[tuple[str, float, Interval]],
    x: str,
    y: str,
    log_x: bool = True,
    without: Sequence[tuple[str, float]] = (),
) -> str | None:
    """Draw quality against cost, a row (name, cost, (value, low, high)).

    Those `without` cost are lines across.
    """
    figure, axes = _create_figure()
    if figure is None:
        return None
    for name, value in without:
        axes.axhline(value, color="#777", linewidth=1, linestyle="--")
        axes.annotate(
            _escape_math(name),
            (0.01, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=8,
            color="#555",
        )
    for name, cost, (value, low, high) in rows:
        bar = axes.errorbar(cost, value, yerr=[[value - low], [high - value]], fmt="o", capsize=3)
        axes.annotate(
            _escape_math(name),
            (cost, value),
            xytext=(6, 4),
            textcoords="offset points",
            fontsize=8,
            color=bar[0].get_color(),
        )
    if log_x:
        axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return _render_svg(figure)


def _escape_math(name: str) -> str:
    """Return a name that matplotlib draws as it is: between two $ it would read mathematics."""
    return name.replace("$", r"\$")


def _create_figure(width: float = 7.0, height: float = 3.6) -> tuple[Any, Any]:
    """Return a figure and its axes; None for both without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None, None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def _render_svg(figure: Any) -> str:
    """Return the `<svg` element, without a date and with ids that are the same in every run."""
    import matplotlib

    with matplotlib.rc_context(
        {"svg.hashsalt": "report", "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
