"""Shows quality against what it costs: labels, pre-training, time per review."""

from collections.abc import Mapping
from typing import Any

from model.report import charts, label_curves
from model.report.document import Block, Figure, Heading, Table
from model.report.results import Results
from model.report.sections import (
    format_main_metric,
    format_number,
    get_title,
    is_percentage,
    scale_interval,
)

AXES = (
    ("matrix_flops", "pre-training operations in matrix products"),
    ("tokens", "pre-training tokens"),
    ("latency_ms", "latency (ms a review, batch 1, p50)"),
)


def build_cost_blocks(study: Mapping[str, Any], results: Results) -> list[Block]:
    """Return the section on costs, empty where the study has none."""
    blocks = [
        *_build_label_curves(study, results),
        *_draw_quality_charts(study, results),
        *_build_pretraining_table(study),
        *_build_cost_table(study, results),
    ]
    return [Heading("What it costs"), *blocks] if blocks else []


def _draw_quality_charts(study: Mapping[str, Any], results: Results) -> list[Block]:
    """Draw the main metric of each arm against its cost; an arm without it is a line across."""
    blocks: list[Block] = []
    for field, axis in AXES:
        costs = {arm["name"]: arm[field] for arm in study.get("arms", []) if arm.get(field)}
        if len(set(costs.values())) < 2 and (field == "latency_ms" or not costs):
            continue
        for task in results.tasks:
            main = results.get_main_metric(task)
            scale = 100 if is_percentage(main) else 1
            rows = [
                (arm, costs[arm], scale_interval(pooled[main], scale))
                for arm in results.arms
                if arm in costs and (pooled := results.pool_metrics(arm, task))
            ]
            others = [a for a in results.arms if a not in costs and results.pool_metrics(a, task)]
            lines = [
                (arm, scale * results.pool_metrics(arm, task)[main]["value"]) for arm in others
            ]
            named = get_title(main) + (" (%)" if scale == 100 else "")
            svg = charts.draw_points(rows, axis, named, without=lines) if rows else None
            if svg:
                blocks.append(Figure(svg, f"{task}: {get_title(main)} against {axis}"))
    return blocks


def _build_label_curves(study: Mapping[str, Any], results: Results) -> list[Block]:
    """Draw and list the main metric against the number of labels.

    Tasks that differ in n_train alone are points of one curve per arm that has all of them.
    """
    blocks: list[Block] = []
    for line, named in label_curves.group_label_curves(
        [t for t in study.get("tasks", []) if t["name"] in results.tasks]
    ).items():
        main = results.get_main_metric(next(iter(named.values())))
        scale = 100 if is_percentage(main) else 1
        arms = [
            arm
            for arm in results.arms
            if all(results.list_cells(arm, task) for task in named.values())
        ]
        curves = {
            arm: [
                (n, scale * results.pool_metrics(arm, task)[main]["value"])
                for n, task in named.items()
            ]
            for arm in arms
        }
        if not curves:
            continue
        svg = charts.draw_lines(curves, "training examples", get_title(main), log_x=True)
        if svg:
            blocks.append(Figure(svg, f"{line}: {get_title(main)} against the number of labels"))
        header = ("arm", *(f"{n:,} labels" for n in named))
        rows = [(arm, *(format_number(main, y / scale) for _, y in p)) for arm, p in curves.items()]
        blocks.append(Table(header, rows, f"{line}: {get_title(main)} by the number of labels"))
    return blocks


def _build_pretraining_table(study: Mapping[str, Any]) -> list[Block]:
    """List what each arm's pre-training cost, in both counts of model/pretraining/flops.py."""
    rows = [
        (
            arm["name"],
            f"{arm['tokens']:,.0f}",
            f"{arm['matrix_flops']:.3e}",
            f"{arm['flops']:.3e}",
            f"{arm['seconds']:,.0f}",
        )
        for arm in study.get("arms", [])
        if arm.get("matrix_flops")
    ]
    header = ("arm", "tokens", "matrix products", "as the ELECTRA paper counts", "seconds")
    caption = (
        "Pre-training; arms are equal in cost where their matrix products are. The paper's count "
        "adds dense look-ups, which nobody computes: it only serves to compare with the paper"
    )
    return [Table(header, rows, caption)] if rows else []


def _build_cost_table(study: Mapping[str, Any], results: Results) -> list[Block]:
    """List each arm's main metrics beside what a review costs."""
    measured = [arm for arm in study.get("arms", []) if arm.get("cost")]
    if not measured:
        return []
    first = measured[0]["cost"]
    header = (
        "arm",
        *(f"{task}: {get_title(results.get_main_metric(task))}" for task in results.tasks),
        "parameters",
        "MB of weights",
        "p50 / p99 ms, one at a time",
        "p50 / p99 ms, of 32",
        "reviews a second",
        "GPU memory (MB)" if first["device"] == "cuda" else "memory (MB)",
    )
    rows: list[tuple[str, ...]] = []
    for arm in measured:
        metrics = [format_main_metric(results, arm["name"], task) for task in results.tasks]
        rows.append((arm["name"], *metrics, *_format_cost(arm["cost"])))
        for form, cost in arm.get("forms", {}).items():
            changed = f"{cost['changed_labels']} of {cost['reviews']} labels change"
            others = [""] * (len(results.tasks) - 1)
            rows.append((f"{arm['name']}, {form}", changed, *others, *_format_cost(cost)))
    caption = (
        f"Cost per review, text to answer, on {first['device']} with {first['threads']} "
        "thread(s); main metrics with their 95% intervals. A form is one of the scorer's, on a "
        "CPU: the labels that differ on test reviews of the first task"
    )
    return [Table(header, rows, caption)]


def _format_cost(cost: Mapping[str, Any]) -> list[str]:
    one, many = cost["batch_1"], cost["batch_32"]
    return [
        f"{cost['parameters']:,}",
        f"{cost['bytes'] / 1e6:.1f}",
        f"{one['p50_ms']:.2f} / {one['p99_ms']:.2f}",
        f"{many['p50_ms']:.2f} / {many['p99_ms']:.2f}",
        f"{cost['reviews_per_second']:,.0f}",
        f"{cost['peak_bytes'] / 1e6:,.0f}" if "form" not in cost else "",
    ]
