"""Builds the tables and the two figures of a report, each from results alone.

Figures are SVG text; without matplotlib there are none.
"""

import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.model.evaluation.metrics import METRICS, list_class_figures
from amazon_electra.model.evaluation.significance import Comparison
from amazon_electra.model.questions.forecast import forecast_gain
from amazon_electra.model.report.document import Block, Details, Figure, Heading, Paragraph, Table
from amazon_electra.model.report.inputs import ArmFacts, ReportInput
from amazon_electra.model.report.results import (
    MARK,
    Cell,
    Difference,
    Results,
    pool_differences,
)

MAX_CLASSES = 10
"""Of a task whose classes have a row each; corpora may have 200."""
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
    is_logarithmic: bool = False
    """Whether the x of lines is drawn so."""
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
            offset = {"xytext": (6, 4), "textcoords": "offset points"}
            axes.annotate(_escape_math(name), (x, value), **offset, fontsize=8, color=color)
        if panel.is_logarithmic or panel.points:
            axes.set_xscale("log")
        if panel.points:
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


MISTAKES_IN_MARKDOWN = 10
"""The page has all of the hundred that each evaluation keeps."""
MORE_LABELS = 200
"""Whose worth is forecast from the label curve."""
TEXT_SHOWN = 300
"""Characters of a text that are shown."""
CURVES = (
    (r"(?!validation_).*loss", "loss", "Pre-training: losses"),
    (r"validation_(?!fixed_).*loss", "loss", "Pre-training: losses on dev reviews"),
    (r"probe_accuracy", "accuracy", "Pre-training: linear probe of polarity on dev reviews"),
)
"""Pattern of the measures in metrics.jsonl, axis and title."""
HOW_ARMS_ARE_COMPARED = (
    "Arms are compared on the same test examples, seed by seed. The interval and p count both the "
    "examples (paired bootstrap) and the seeds (two-way random effects, whose variance is pooled "
    "over the comparisons of this table as far as it is alike). With one seed p is that of "
    "swapping the two arms' answers to randomly chosen examples (of accuracies: McNemar's exact "
    "test, by sampling). p (Holm) is p corrected for all tasks and pairs of this table (Holm's "
    "step-down method); a difference is called one where p (Holm) is below 0.05."
)


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


def format_p(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_answer(answer: Any) -> str:
    """Return a label or prediction as text; several answers are a list of (text, place)."""
    if not isinstance(answer, list):
        return str(answer) or "none"
    texts = [str(one[0]) if isinstance(one, list) else str(one) for one in answer]
    return "; ".join(dict.fromkeys(texts)) or "none"


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


def build_result_table(results: Results) -> Table:
    """Return every task and arm with all metrics, the tasks' main metrics first."""
    mains = [results.get_main_metric(task) for task in results.tasks]
    others = [metric for task in results.tasks for metric in results.list_metrics(task)]
    metrics = list(dict.fromkeys([*mains, *others]))
    rows = [
        (
            results.mark_task(task),
            arm,
            results.count_seeds(arm, task),
            cells[0].label_budget,
            f"{cells[0].about['n']:,}",
            *(format_with_interval(m, pooled[m]) if m in pooled else "–" for m in metrics),
        )
        for task in results.tasks
        for arm in results.arms
        if (cells := results.list_cells(arm, task))
        for pooled in [results.pool_metrics(arm, task)]
    ]
    caption = "Means over seeds on test, with their 95% intervals over examples and seeds"
    if any(results.find_exposure(task) is not None for task in results.tasks):
        caption += f".{MARK}: a published encoder of this study was trained on texts of this source"
    header = ("task", "arm", "seeds", "labels", "test examples", *map(get_title, metrics))
    return Table(header, rows, caption)


def build_class_table(results: Results) -> list[Block]:
    """Return recall and precision of each class of every task and arm, over the seeds together."""
    rows = []
    for task in results.tasks:
        for arm in results.arms:
            cells = [c for c in results.list_cells(arm, task) if "labels" in c.about]
            if not cells or len(cells[0].about["labels"]) > MAX_CLASSES:
                continue
            about = [cell.about for cell in cells]
            if "confusion" in about[0]:
                confusion = np.sum([one["confusion"] for one in about], axis=0)
                figures = list_class_figures(confusion, about[0]["labels"])
            else:  # of several classes at once the first seed stands for all
                cells, figures = cells[:1], about[0]["classes"]
            fewest, *others = sorted(one["n"] for one in figures)
            rarest = fewest if others and fewest < others[0] else None
            rows += [
                (
                    results.mark_task(task),
                    arm,
                    f"{one['label']}, the rarest" if one["n"] == rarest else one["label"],
                    f"{one['n'] // len(cells):,}",
                    *("–" if v is None else f"{v:.1%}" for v in (one["recall"], one["precision"])),
                )
                for one in figures
            ]
    header = ("task", "arm", "class", "test examples", "recall", "precision")
    return [Table(header, rows, "Each class on test, all seeds together")] if rows else []


DIFFERENCE_HEADER = (
    *("task", "comparison", "metric", "difference", "95% interval"),
    *("p", "p (Holm)", "finding"),
)


def build_label_curve(results: Results, curve: Mapping[int, Results]) -> list[Block]:
    """Return a figure and a table of each task's main metric against the number of labels; `curve`
    has the results with fewer labels than all.
    """
    if not curve:
        return []
    panels, rows, points = [], [], [*curve.items(), (0, results)]
    gains: list[str] = []
    for task in results.tasks:
        metric, lines = results.get_main_metric(task), {}
        for arm in results.arms:
            pooled = [
                (n, of.list_cells(arm, task), of.pool_metrics(arm, task)[metric])
                for n, of in points
                if of.list_cells(arm, task)
            ]
            if len(pooled) < 2:
                continue
            every = [(n or cells[0].trained_with, v["value"]) for n, cells, v in pooled]
            lines[arm] = [(n, value) for n, value in every if n]
            if metric == "accuracy" and len(lines[arm]) == len(pooled):
                tests = [cells[0].about["n"] for _, cells, _ in pooled]
                labels, shares = zip(*lines[arm], strict=True)
                worth = forecast_gain(labels, shares, tests, MORE_LABELS)
                gains += [f"{task}, {arm}: {worth.describe()}"] if worth else []
            found = {n: format_with_interval(metric, values) for n, _, values in pooled}
            rows.append((task, arm, get_title(metric), *(found.get(n, "–") for n, _ in points)))
        title = f"{get_title(metric)} on test of {task} by the number of labels"
        panels.append(Panel(title, "labels", get_title(metric), lines, is_logarithmic=True))
    svg = draw_panels(panels)
    header = ("task", "arm", "metric", *(f"{n:,} labels" for n in curve), "all")
    caption = "Means over seeds with their 95% intervals; with fewer labels on fewer test examples"
    return [
        Heading("With fewer labels"),
        *([Figure(svg, "Learning curve by labels")] if svg else []),
        Table(header, rows, caption),
        *(Paragraph(text) for text in gains),
        *build_pooled_blocks(
            [results, *curve.values()],
            list(itertools.combinations(next(iter(curve.values())).arms, 2)),
        ),
    ]


def build_pooled_blocks(points: Sequence[Results], pairs: Sequence[tuple[str, str]]) -> list[Block]:
    """Return the differences between pairs of arms over several tasks and numbers of labels."""
    pooled = pool_differences(points, pairs)
    caption = (
        "The mean difference over all tasks and numbers of labels with the same metric; test "
        "examples and seeds that these share are counted once"
    )
    return [Table(DIFFERENCE_HEADER, list_difference_rows(pooled), caption)] if pooled else []


def list_difference_rows(differences: Sequence[Difference]) -> list[tuple[str, ...]]:
    """Return a row for each difference under DIFFERENCE_HEADER."""
    return [
        (
            d.task,
            f"{d.a} − {d.b}",
            get_title(d.comparison.metric),
            format_change(d.comparison.metric, d.comparison.difference),
            format_range(d.comparison),
            format_p(d.comparison.p),
            format_p(d.comparison.p_holm),
            d.finding,
        )
        for d in differences
    ]


def build_difference_blocks(differences: Sequence[Difference], results: Results) -> list[Block]:
    """Return every comparison with its interval and tests, and how they are made."""
    if not differences:
        return []
    rows = list_difference_rows([replace(d, task=results.mark_task(d.task)) for d in differences])
    how = HOW_ARMS_ARE_COMPARED
    if any(d.comparison.pretraining_seeds > 1 for d in differences):
        how += (
            " Pre-training seeds are a random effect as well: crossed with the fine-tuning seeds "
            "where every encoder was fine-tuned with the same ones, else nested."
        )
    if any(d.one_checkpoint for d in differences):
        how += (
            " A difference of this one checkpoint comes from one pre-training: its interval does "
            "not count how much pre-training seeds vary."
        )
    pairs = list(dict.fromkeys((d.a, d.b) for d in differences))
    pooled = build_pooled_blocks([results], pairs)
    return [Heading("Differences"), Table(DIFFERENCE_HEADER, rows), *pooled, Paragraph(how)]


def build_cost_blocks(study: ReportInput, results: Results) -> list[Block]:
    """Return what pre-training and use of each arm cost, and the first task's main metric against
    both.
    """
    table = build_cost_table(study.arms)
    if table is None:
        return []
    task = results.tasks[0]
    metric = results.get_main_metric(task)
    scale = 100 if is_percentage(metric) else 1
    values = {
        arm: (scale * of["value"], scale * of["low"], scale * of["high"])
        for arm in results.arms
        if (pooled := results.pool_metrics(arm, task))
        for of in [pooled[metric]]
    }
    costs = {
        "pre-training operations (FLOPs of matrix products)": {
            arm.name: arm.matrix_flops for arm in study.arms if arm.matrix_flops
        },
        "latency (ms a review, one at a time, p50)": {
            arm.name: arm.cost["batch_1"]["p50_ms"] for arm in study.arms if arm.cost
        },
    }
    panels = [
        Panel(
            task,
            x,
            get_title(metric) + (" (%)" if scale == 100 else ""),
            points=[(arm, of[arm], values[arm]) for arm in values if arm in of],
            levels=[(arm, values[arm][0]) for arm in values if arm not in of],
        )
        for x, of in costs.items()
        if set(of) & set(values)
    ]
    blocks: list[Block] = [Heading("What it costs"), table]
    if panels and (svg := draw_panels(panels)):
        caption = f"{task}: {get_title(metric)} with its 95% interval against cost"
        blocks.append(Figure(svg, caption))
    return blocks


def build_cost_table(arms: Sequence[ArmFacts]) -> Table | None:
    """Return a row for each arm whose cost is known; columns without a value are left out."""
    header = ["arm", "tokens of pre-training", "FLOPs of matrix products", "seconds"]
    header += ["parameters", "MB of weights", "p50 / p99 ms, one at a time"]
    header += ["p50 / p99 ms, of 32", "reviews a second", "MB of memory"]
    rows = []
    for arm in arms:
        row = [
            f"{arm.tokens:,.0f}" if arm.tokens else "",
            f"{arm.matrix_flops:.3e}" if arm.matrix_flops else "",
            f"{arm.seconds:,.0f}" if arm.seconds else "",
            *(_format_cost(arm.cost) if arm.cost else [""] * 6),
        ]
        rows += [[arm.name, *row]] if any(row) else []
    if not rows:
        return None
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    caption = "Cost of each arm"
    if measured := next((arm.cost for arm in arms if arm.cost), None):
        caption += (
            f"; use is timed from text to answer on {measured['device']} with "
            f"{measured['threads']} thread(s)"
        )
    return Table([header[i] for i in kept], [[r[i] or "–" for i in kept] for r in rows], caption)


def _format_cost(cost: Mapping[str, Any]) -> list[str]:
    one, many = cost["batch_1"], cost["batch_32"]
    return [
        f"{cost['parameters']:,}",
        f"{cost['bytes'] / 1e6:.1f}",
        f"{one['p50_ms']:.2f} / {one['p99_ms']:.2f}",
        f"{many['p50_ms']:.2f} / {many['p99_ms']:.2f}",
        f"{cost['reviews_per_second']:,.0f}",
        f"{cost['peak_bytes'] / 1e6:,.0f}",
    ]


def build_curve_blocks(study: ReportInput, base: Path, results: Results) -> list[Block]:
    """Return one figure of the losses and the probe of pre-training and of the main metric on dev
    while fine-tuning (first task, first seed).
    """
    logs = {entry.name: _read_lines(base / entry.metrics) for entry in study.pretraining}
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
    if not panels or not (svg := draw_panels(panels)):
        return []
    return [Heading("Training"), Figure(svg, "Curves of pre-training and fine-tuning")]


def read_learning_curve(cell: Cell, metric: str) -> list[tuple[float, float]]:
    """Return (step, metric on dev) with the chosen learning rate, from its own first step on."""
    lines = _read_lines(cell.finetuned / "metrics.jsonl")
    rate = cell.about.get("learning_rate")
    kept = [line for line in lines if line.get("peak_learning_rate") == rate]
    before = [line["step"] for line in lines if kept and line["attempt"] < kept[0]["attempt"]]
    begun, name = max(before, default=0), f"dev_{metric}"
    return [(line["step"] - begun, line[name]) for line in kept if name in line]


def _read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a JSON Lines file; none where it is missing."""
    if not file.is_file():
        return []
    return [
        json.loads(line)
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.endswith("}")
    ]


def build_mistake_blocks(results: Results) -> list[Block]:
    """Return the texts that the first seed of each arm answers worst, by task."""
    blocks: list[Block] = []
    for task, arm in itertools.product(results.tasks, results.arms):
        for cell in results.list_cells(arm, task)[:1]:
            rows = [
                (
                    format_answer(m["label"]),
                    format_answer(m["prediction"]),
                    f"{m['loss']:.2f}",
                    f"{m['file']}, row {m['row']}" if "file" in m else "",
                    " ¶ ".join(m[name][:TEXT_SHOWN] for name in ("text", "pair") if m.get(name)),
                )
                for m in _read_lines(cell.folder / "mistakes.jsonl")
            ]
            table = Table(
                ("label", "said", "loss", "where", "text"), rows, "", MISTAKES_IN_MARKDOWN
            )
            title = f"{arm}, {task}, seed {cell.seed}"
            blocks += [Details(title, [table])] if rows else []
    return [Heading("Worst mistakes"), *blocks] if blocks else []
