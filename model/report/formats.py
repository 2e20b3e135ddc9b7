"""Formats metrics, their intervals and their differences as a reader sees them."""

from collections.abc import Mapping
from typing import Any

from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.evaluation.significance import Comparison


def get_title(metric: str) -> str:
    return METRICS[metric].title


def is_percentage(metric: str) -> bool:
    return metric not in ("loss", "mse", "mae", "kappa")


def format_number(metric: str, value: float) -> str:
    return f"{100 * value:.1f}%" if is_percentage(metric) else f"{value:.3f}"


def format_change(metric: str, value: float) -> str:
    return f"{100 * value:+.1f} points" if is_percentage(metric) else f"{value:+.3f}"


def format_with_interval(metric: str, values: Mapping[str, float]) -> str:
    low, high = format_number(metric, values["low"]), format_number(metric, values["high"])
    return f"{format_number(metric, values['value'])} ({low.rstrip('%')} – {high.rstrip('%')})"


def format_range(c: Comparison) -> str:
    low, high = (format_change(c.metric, end).removesuffix(" points") for end in (c.low, c.high))
    return f"{low} to {high}"


def format_share(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def format_p(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_detail(value: Any) -> str:
    """Return a value of the dump's description."""
    if isinstance(value, list | tuple):
        return ", ".join(map(format_detail, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
