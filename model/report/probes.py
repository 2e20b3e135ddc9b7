"""Shows what a probe did in pre-trainings that began with a published encoder: how good the states
were, which one was written, and which arms are therefore the published encoder still.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from model.report import charts
from model.report.document import Block, Figure, Paragraph, Table

ACCURACY = "probe_accuracy"
"""Name in metrics.jsonl."""


def build_probe_blocks(study: Mapping[str, Any], base: Path) -> list[Block]:
    """Draw the accuracy of the probe in each pre-training that has one, against that of the encoder
    it began with, and list which state was written.
    """
    entries = study.get("pretraining") or []
    probed = {
        entry["name"]: points
        for entry in entries
        if (points := _read_points(base / entry["metrics"]))
    }
    if not probed:
        return []
    written = {entry["name"]: entry.get("written_step") for entry in entries}
    rows = [
        (
            name,
            f"{points[0][1]:.1f}",
            f"{max(value for _, value in points):.1f}",
            f"{points[-1][1]:.1f}",
            _format_step(written[name]),
        )
        for name, points in probed.items()
    ]
    begun = {
        f"what {name} began with": [(points[0][0], points[0][1]), (points[-1][0], points[0][1])]
        for name, points in probed.items()
    }
    levels = _merge_equal_lines(begun)
    svg = charts.draw_lines(levels | probed, "step", "accuracy (%)", dashed=levels)
    caption = "Linear probe of polarity on dev reviews, at step 0 of the encoder it began with"
    header = ("probe, accuracy (%)", "at the beginning", "best", "last", "written")
    return [*([Figure(svg, caption)] if svg else []), Table(header, rows)]


def warn_of_unchanged_arms(study: Mapping[str, Any]) -> list[Block]:
    """Return a warning for each arm whose encoder is, in some or all of its pre-trainings, the one
    that these began with.
    """
    return [Paragraph(text, "warning") for text in _describe_unchanged_arms(study)]


def _describe_unchanged_arms(study: Mapping[str, Any]) -> Iterator[str]:
    for arm in study.get("arms") or []:
        steps = arm.get("written_steps") or []
        unchanged = steps.count(0)
        if not unchanged:
            continue
        which = f" in {unchanged} of its {len(steps)} pre-trainings" if len(steps) > 1 else ""
        yield (
            f"{arm['name']} is the encoder it began with, unchanged{which}: no state of the "
            "training beat that one in the probe by probe_margin, and none after trusted_tokens "
            "came near it, so its weights were written. "
            "What is measured of it there says nothing of the training."
        )


def _read_points(file: Path) -> list[tuple[float, float]]:
    """Return (step, accuracy in percent) of a log."""
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    return [(line["step"], 100 * line[ACCURACY]) for line in lines if ACCURACY in line]


def _merge_equal_lines(
    lines: Mapping[str, list[tuple[float, float]]],
) -> dict[str, list[tuple[float, float]]]:
    """Return one line for all that begin at the same accuracy: the longest, by the name of the
    first.
    """
    merged: dict[float, tuple[str, list[tuple[float, float]]]] = {}
    for name, points in lines.items():
        level = points[0][1]
        first, longest = merged.get(level, (name, points))
        merged[level] = first, max(longest, points, key=lambda line: line[-1][0])
    return dict(merged.values())


def _format_step(step: int | None) -> str:
    if step is None:
        return "–"
    return f"step {step:,}" if step else "the encoder it began with"
