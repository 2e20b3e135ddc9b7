"""Builds the report's tables and figures, each from results alone."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.evaluation.metrics import METRICS
from model.evaluation.significance import Comparison
from model.report import charts
from model.report.document import Block, Details, Figure, Heading, Paragraph, Table
from model.report.results import Cell, Difference, Results

MISTAKES_IN_MARKDOWN = 10
"""The page has all of the hundred that each evaluation keeps."""
TEXT_SHOWN = 300
"""Characters of a text that are shown."""
PRETRAINING_FIGURES = (
    (r"(?!validation_).*loss", "loss", "Losses of pre-training"),
    (r"validation_(?!fixed_).*_loss", "loss", "Losses on dev reviews"),
    (
        r"validation_.*_auc",
        "AUC",
        "AUC of the discriminator on dev reviews, on what the generator puts there and on fixed "
        "replacements; a constant has 0.5",
    ),
    (
        r"validation_.*_effective_rank",
        "effective rank",
        "Effective rank of the encoder's states on dev reviews; collapsed ones have few",
    ),
    (
        r"validation_.*_mean_cosine",
        "mean cosine",
        "Mean cosine of the states of two tokens of dev reviews; collapsed ones have almost 1",
    ),
)
"""Pattern of the measures' names in metrics.jsonl, axis and caption of each figure of a
pre-training.
"""


def get_title(metric: str) -> str:
    return METRICS[metric].title


def is_percentage(metric: str) -> bool:
    return metric not in ("loss", "mse")


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


def scale_interval(values: Mapping[str, float], scale: float = 1.0) -> charts.Interval:
    return scale * values["value"], scale * values["low"], scale * values["high"]


def format_main_metric(results: Results, arm: str, task: str) -> str:
    """Return the main metric of an arm on a task with its interval, or a dash."""
    pooled = results.pool_metrics(arm, task)
    metric = results.get_main_metric(task)
    return format_with_interval(metric, pooled[metric]) if pooled else "–"


def describe_only_answer(results: Results, arm: str, task: str) -> str:
    """Say that an arm answers one class only, or nothing; empty where it does not."""
    answer = results.find_only_answer(arm, task)
    if answer is None:
        return ""
    seeds = len(results.list_cells(arm, task))
    where = "" if answer[1] == seeds else f" with {answer[1]} of {seeds} seeds"
    if not answer[0]:
        return f"{task}: {arm} answers nothing{where}"
    return f"{task}: {arm} answers one class only{where}: {answer[0]}"


def build_result_tables(results: Results) -> list[Block]:
    """Return a table per task, arms down and metrics across, and a chart of the main metric."""
    blocks: list[Block] = []
    for task in results.tasks:
        metrics = results.list_metrics(task)
        arms = [
            (arm, results.pool_metrics(arm, task), results.list_cells(arm, task))
            for arm in results.arms
            if results.list_cells(arm, task)
        ]
        n = arms[0][2][0].about["n"]
        rows = [
            (
                arm,
                results.count_seeds(arm, task),
                *(format_with_interval(m, pooled[m]) for m in metrics),
            )
            for arm, pooled, _ in arms
        ]
        caption = (
            f"{task}: mean over seeds on {n:,} test examples (95% interval over examples and seeds)"
        )
        blocks.append(Table(("arm", "seeds", *map(get_title, metrics)), rows, caption))
        main = results.get_main_metric(task)
        scale = 100 if is_percentage(main) else 1
        drawn = [(arm, scale_interval(p[main], scale)) for arm, p, _ in arms]
        svg = charts.draw_intervals(drawn, get_title(main) + (" (%)" if scale == 100 else ""))
        if svg:
            blocks.append(
                Figure(svg, f"{task}: {get_title(main)} of each arm with its 95% interval")
            )
    return blocks


def build_difference_chart(differences: list[Difference]) -> list[Block]:
    """Return a chart of the differences that are in percent: others have another axis."""
    rows = [
        (f"{d.task}: {d.a} − {d.b}", (100 * c.difference, 100 * c.low, 100 * c.high))
        for d in differences
        if is_percentage((c := d.comparison).metric)
    ]
    svg = charts.draw_intervals(rows, "difference (points)", zero=True) if rows else None
    return (
        [Figure(svg, "Differences with their 95% intervals; the dashed line is no difference")]
        if svg
        else []
    )


def build_pretraining_curves(study: Mapping[str, Any], base: Path) -> list[Block]:
    """Draw the measures of pre-training from each metrics.jsonl, a figure for each of
    PRETRAINING_FIGURES, and list their first and last.
    """
    logs = {
        entry["name"]: [
            json.loads(line)
            for line in (base / entry["metrics"]).read_text().splitlines()
            if line.endswith("}")
        ]
        for entry in study.get("pretraining") or []
    }
    blocks: list[Block] = []
    rows = []
    for pattern, axis, caption in PRETRAINING_FIGURES:
        series = _read_pretraining_series(logs, pattern)
        svg = charts.draw_lines(series, "step", axis) if series else None
        blocks += [Figure(svg, caption)] if svg else []
        rows += [
            (title, f"{points[0][1]:.3f}", f"{points[-1][1]:.3f}", f"{points[-1][0]:,.0f}")
            for title, points in series.items()
        ]
    if not rows:
        return []
    return [Heading("Pre-training"), *blocks, Table(("measure", "first", "last", "steps"), rows)]


def _read_pretraining_series(
    logs: Mapping[str, Sequence[Mapping[str, float]]], pattern: str
) -> dict[str, list[tuple[float, float]]]:
    """Return (step, value) of every measure whose whole name matches, by pre-training and name."""
    return {
        f"{title}: {name.replace('_', ' ')}": [
            (line["step"], line[name]) for line in lines if name in line
        ]
        for title, lines in logs.items()
        for name in sorted({name for line in lines for name in line})
        if re.fullmatch(pattern, name)
    }


def build_vocabulary_blocks(counts: Mapping[str, Any] | None) -> list[Block]:
    """Return how the vocabularies that a published start may have fit the dump (fit.json)."""
    choices = (counts or {}).get("choices") or []
    rows = [
        (
            one["vocabulary"],
            f"{one['size']:,}",
            f"{one['tokens_per_word']:.3f}",
            f"{one['unknown_rate']:.3%}",
        )
        for one in choices
    ]
    header = ("vocabulary", "entries", "tokens per word", "unknown words")
    caption = "Vocabularies that a published start may have, on the dump's dev reviews"
    return [Table(header, rows, caption)] if rows else []


def build_learning_curves(results: Results) -> list[Block]:
    """Draw the main metric on dev while the first seed of each arm was fine-tuned.

    Only steps with the learning rate that was chosen count.
    """
    blocks: list[Block] = []
    for task in results.tasks:
        main = results.get_main_metric(task)
        scale = 100 if is_percentage(main) else 1
        series = {
            arm: _read_learning_curve(results.list_cells(arm, task)[0], main, scale)
            for arm in results.arms
            if results.list_cells(arm, task)
        }
        series = {arm: points for arm, points in series.items() if len(points) > 1}
        svg = (
            charts.draw_lines(series, "fine-tuning step", f"{get_title(main)} on dev")
            if series
            else None
        )
        if svg:
            blocks.append(
                Figure(svg, f"{task}: {get_title(main)} on dev while fine-tuning, first seed")
            )
    return blocks


def _read_learning_curve(cell: Cell, metric: str, scale: float) -> list[tuple[float, float]]:
    """Return (step, metric on dev); steps count from the start of the chosen learning rate."""
    file = Path(str(cell.about.get("model", ""))) / "metrics.jsonl"
    if not file.is_file():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    kept = [
        line for line in lines if line.get("peak_learning_rate") == cell.about.get("learning_rate")
    ]
    others = [line["step"] for line in lines if kept and line["attempt"] < kept[0]["attempt"]]
    begun = max(others, default=0)
    return [
        (line["step"] - begun, scale * line[f"dev_{metric}"])
        for line in kept
        if f"dev_{metric}" in line
    ]


def build_run_details(results: Results) -> list[Block]:
    """Return a table of every cell, and confusion, slices and mistakes of each arm's first seed."""
    rows = [
        (
            c.arm,
            c.task,
            str(c.seed),
            f"{c.about.get('learning_rate', 0):g}",
            *(
                f"{get_title(m)} {format_with_interval(m, c.about['metrics'][m])}"
                for m in list(c.about["metrics"])[:2]
            ),
            c.fingerprint,
        )
        for c in results.cells
    ]
    width = max(map(len, rows))
    rows = [(*row[:-1], *[""] * (width - len(row)), row[-1]) for row in rows]
    header = (
        "arm",
        "task",
        "seed",
        "learning rate chosen on dev",
        "on test (95% interval)",
        *["and"] * (width - 6),
        "cell",
    )
    first = [
        results.list_cells(arm, task)[0]
        for task in results.tasks
        for arm in results.arms
        if results.list_cells(arm, task)
    ]
    return [
        Table(header, rows),
        *(Details(f"{c.arm}, {c.task}, seed {c.seed}", _build_cell_blocks(c)) for c in first),
    ]


def _build_cell_blocks(cell: Cell) -> list[Block]:
    blocks: list[Block] = []
    if "confusion" in cell.about and len(cell.about["labels"]) <= 20:
        labels = cell.about["labels"]
        rows = [
            (label, *map(str, row))
            for label, row in zip(labels, cell.about["confusion"], strict=True)
        ]
        blocks.append(Table(("label ↓ said →", *labels), rows, "Confusion matrix"))
    for name, parts in cell.about.get("slices", {}).items():
        metrics = [m for m in METRICS if any(m in part for part in parts)]
        rows = [
            (p["part"], f"{p['n']:,}", *(_format_part(m, p.get(m)) for m in metrics)) for p in parts
        ]
        blocks.append(Table((name, "n", *map(get_title, metrics)), rows, f"By {name}"))
    mistakes = cell.folder / "mistakes.jsonl"
    if mistakes.exists():
        read = [json.loads(line) for line in mistakes.read_text().splitlines()]
        rows = [
            (
                _format_answer(m["label"]),
                _format_answer(m["prediction"]),
                f"{m['loss']:.2f}",
                _shorten_text(m),
            )
            for m in read
        ]
        blocks.append(
            Table(("label", "said", "loss", "text"), rows, "Worst mistakes", MISTAKES_IN_MARKDOWN)
        )
    return blocks or [Paragraph("Nothing more is kept of this run.")]


def _format_part(metric: str, value: Mapping[str, float] | float | None) -> str:
    """Return a part's metric, with its interval where the evaluation has one, or a dash."""
    if value is None:
        return "–"
    if isinstance(value, int | float):
        return format_number(metric, value)
    return format_with_interval(metric, value)


def _format_answer(answer: Any) -> str:
    """Return a label or prediction as text; several answers are a list of (text, place)."""
    if isinstance(answer, list):
        return (
            "; ".join(
                dict.fromkeys(str(one[0]) if isinstance(one, list) else str(one) for one in answer)
            )
            or "none"
        )
    return str(answer) or "none"


def _shorten_text(mistake: Mapping[str, Any]) -> str:
    return " ¶ ".join(mistake[name][:TEXT_SHOWN] for name in ("text", "pair") if mistake.get(name))
