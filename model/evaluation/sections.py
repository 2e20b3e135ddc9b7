"""The report's tables and figures, each from results alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.evaluation import charts
from model.evaluation.document import Block, Details, Figure, Heading, Paragraph, Table
from model.evaluation.metrics import METRICS
from model.evaluation.results import Cell, Difference, Results
from model.evaluation.significance import Comparison

MISTAKES_IN_MARKDOWN = 10
"""Of the hundred kept beside each evaluation, which are all on the page."""
TEXT_SHOWN = 300
"""Characters of a text."""


def title_of(metric: str) -> str:
    return METRICS[metric].title


def in_percent(metric: str) -> bool:
    return metric not in ("loss", "mse")


def number(metric: str, value: float) -> str:
    return f"{100 * value:.1f}%" if in_percent(metric) else f"{value:.3f}"


def change(metric: str, value: float) -> str:
    return f"{100 * value:+.1f} points" if in_percent(metric) else f"{value:+.3f}"


def with_interval(metric: str, values: Mapping[str, float]) -> str:
    low, high = number(metric, values["low"]), number(metric, values["high"])
    return f"{number(metric, values['value'])} ({low.rstrip('%')} – {high.rstrip('%')})"


def difference_range(c: Comparison) -> str:
    return f"{change(c.metric, c.low).removesuffix(' points')} to {change(c.metric, c.high).removesuffix(' points')}"


def interval_of(values: Mapping[str, float], scale: float = 1.0) -> charts.Interval:
    return scale * values["value"], scale * values["low"], scale * values["high"]


def percent(found: Results, arm: str, task: str) -> str:
    """The main metric of an arm on a task, with its interval."""
    pooled = found.pooled(arm, task)
    metric = found.main_metric(task)
    return with_interval(metric, pooled[metric]) if pooled else "–"


def result_tables(found: Results) -> list[Block]:
    """One table a task: arms down, metrics across, and the main metric drawn."""
    blocks: list[Block] = []
    for task in found.tasks:
        metrics = found.metrics(task)
        arms = [(arm, found.pooled(arm, task), found.of(arm, task)) for arm in found.arms if found.of(arm, task)]
        n = arms[0][2][0].about["n"]
        rows = [(arm, str(len(cells)), *(with_interval(m, pooled[m]) for m in metrics)) for arm, pooled, cells in arms]
        caption = f"{task}: mean over seeds on {n:,} test examples (95% interval over examples and seeds)"
        blocks.append(Table(("arm", "seeds", *map(title_of, metrics)), rows, caption))
        main = found.main_metric(task)
        scale = 100 if in_percent(main) else 1
        drawn = [(arm, interval_of(p[main], scale)) for arm, p, _ in arms]
        svg = charts.intervals(drawn, title_of(main) + (" (%)" if scale == 100 else ""))
        if svg:
            blocks.append(Figure(svg, f"{task}: {title_of(main)} of each arm with its 95% interval"))
    return blocks


def difference_chart(differences: list[Difference]) -> list[Block]:
    """Only those in percent share an axis."""
    rows = [
        (f"{d.task}: {d.a} − {d.b}", (100 * c.difference, 100 * c.low, 100 * c.high))
        for d in differences
        if in_percent((c := d.comparison).metric)
    ]
    svg = charts.intervals(rows, "difference (points)", zero=True) if rows else None
    return [Figure(svg, "Differences with their 95% intervals; the dashed line is no difference")] if svg else []


def curves(study: Mapping[str, Any], base: Path) -> list[Block]:
    """Losses of pre-training from each metrics.jsonl, and how they began and ended."""
    series: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for entry in study.get("pretraining") or []:
        file = base / entry["metrics"]
        lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        for name in sorted({name for line in lines for name in line if name.endswith("loss")}):
            points = [(line["step"], line[name]) for line in lines if name in line]
            title = f"{entry['name']}: {name.replace('_', ' ')}"
            series[title] = points
            rows.append((title, f"{points[0][1]:.3f}", f"{points[-1][1]:.3f}", f"{points[-1][0]:,.0f}"))
    if not series:
        return []
    svg = charts.lines(series, "step", "loss")
    blocks: list[Block] = [Heading("Pre-training")]
    if svg:
        blocks.append(Figure(svg, "Losses of pre-training"))
    return [*blocks, Table(("loss", "first", "last", "steps"), rows)]


def learning_curves(found: Results) -> list[Block]:
    """The main metric on dev while the first seed of each arm was fine-tuned with the learning rate that was kept."""
    blocks: list[Block] = []
    for task in found.tasks:
        main = found.main_metric(task)
        scale = 100 if in_percent(main) else 1
        series = {arm: _curve(found.of(arm, task)[0], main, scale) for arm in found.arms if found.of(arm, task)}
        series = {arm: points for arm, points in series.items() if len(points) > 1}
        svg = charts.lines(series, "fine-tuning step", f"{title_of(main)} on dev") if series else None
        if svg:
            blocks.append(Figure(svg, f"{task}: {title_of(main)} on dev while fine-tuning, first seed"))
    return blocks


def _curve(cell: Cell, metric: str, scale: float) -> list[tuple[float, float]]:
    """Steps count from the start of the learning rate's own training."""
    file = Path(str(cell.about.get("model", ""))) / "metrics.jsonl"
    if not file.is_file():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    kept = [line for line in lines if line.get("peak_learning_rate") == cell.about.get("learning_rate")]
    others = [line["step"] for line in lines if kept and line["attempt"] < kept[0]["attempt"]]
    begun = max(others, default=0)
    return [(line["step"] - begun, scale * line[f"dev_{metric}"]) for line in kept if f"dev_{metric}" in line]


def details(found: Results) -> list[Block]:
    """Of every cell what dev chose and what came out; of each arm's first seed confusion, slices and mistakes."""
    rows = [
        (
            c.arm,
            c.task,
            str(c.seed),
            f"{c.about.get('learning_rate', 0):g}",
            *(f"{title_of(m)} {with_interval(m, c.about['metrics'][m])}" for m in list(c.about["metrics"])[:2]),
            c.fingerprint,
        )
        for c in found.cells
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
    first = [found.of(arm, task)[0] for task in found.tasks for arm in found.arms if found.of(arm, task)]
    return [Table(header, rows), *(Details(f"{c.arm}, {c.task}, seed {c.seed}", _cell(c)) for c in first)]


def _cell(cell: Cell) -> list[Block]:
    blocks: list[Block] = []
    if "confusion" in cell.about and len(cell.about["labels"]) <= 20:
        labels = cell.about["labels"]
        rows = [(label, *map(str, row)) for label, row in zip(labels, cell.about["confusion"], strict=True)]
        blocks.append(Table(("label ↓ said →", *labels), rows, "Confusion matrix"))
    for name, parts in cell.about.get("slices", {}).items():
        metrics = [m for m in METRICS if any(m in part for part in parts)]
        rows = [(p["part"], f"{p['n']:,}", *(_of_part(m, p.get(m)) for m in metrics)) for p in parts]
        blocks.append(Table((name, "n", *map(title_of, metrics)), rows, f"By {name}"))
    mistakes = cell.folder / "mistakes.jsonl"
    if mistakes.exists():
        read = [json.loads(line) for line in mistakes.read_text().splitlines()]
        rows = [(_short(m["label"]), _short(m["prediction"]), f"{m['loss']:.2f}", _text(m)) for m in read]
        blocks.append(Table(("label", "said", "loss", "text"), rows, "Worst mistakes", MISTAKES_IN_MARKDOWN))
    return blocks or [Paragraph("Nothing more is kept of this run.")]


def _of_part(metric: str, value: Mapping[str, float] | float | None) -> str:
    """Evaluations of before parts had intervals have plain numbers; macro-F1 of one class is left out."""
    if value is None:
        return "–"
    return number(metric, value) if isinstance(value, int | float) else with_interval(metric, value)


def _short(said: Any) -> str:
    """Answers of several annotators are a list of (text, place)."""
    if isinstance(said, list):
        return "; ".join(dict.fromkeys(str(one[0]) if isinstance(one, list) else str(one) for one in said)) or "none"
    return str(said) or "none"


def _text(mistake: Mapping[str, Any]) -> str:
    return " ¶ ".join(mistake[name][:TEXT_SHOWN] for name in ("text", "pair") if mistake.get(name))
