"""The report's figures of quality against what it takes: labels, pre-training, time per review."""

from collections.abc import Mapping
from typing import Any

from model.evaluation import charts, labels
from model.evaluation.document import Block, Figure, Heading, Table
from model.evaluation.results import Results
from model.evaluation.sections import in_percent, interval_of, number, percent, title_of

AXES = (
    ("flops", "pre-training FLOPs"),
    ("tokens", "pre-training tokens"),
    ("latency_ms", "latency (ms a review, batch 1, p50)"),
)


def cost_blocks(study: Mapping[str, Any], found: Results) -> list[Block]:
    """All that the study tells of costs; nothing where it tells nothing."""
    blocks = [*_label_curves(study, found), *_quality_charts(study, found), *_cost_table(study, found)]
    return [Heading("What it costs"), *blocks] if blocks else []


def _quality_charts(study: Mapping[str, Any], found: Results) -> list[Block]:
    """The main metric of each arm against its cost; an arm without pre-training is a line across."""
    blocks: list[Block] = []
    for field, axis in AXES:
        costs = {arm["name"]: arm[field] for arm in study.get("arms", []) if arm.get(field)}
        if len(set(costs.values())) < 2 and (field == "latency_ms" or not costs):
            continue
        for task in found.tasks:
            main = found.main_metric(task)
            scale = 100 if in_percent(main) else 1
            rows = [
                (arm, costs[arm], interval_of(pooled[main], scale))
                for arm in found.arms
                if arm in costs and (pooled := found.pooled(arm, task))
            ]
            others = [arm for arm in found.arms if arm not in costs and found.pooled(arm, task)]
            lines = [(arm, scale * found.pooled(arm, task)[main]["value"]) for arm in others]
            named = title_of(main) + (" (%)" if scale == 100 else "")
            svg = charts.points(rows, axis, named, without=lines) if rows else None
            if svg:
                blocks.append(Figure(svg, f"{task}: {title_of(main)} against {axis}"))
    return blocks


def _label_curves(study: Mapping[str, Any], found: Results) -> list[Block]:
    """Tasks that differ in n_train alone are points of one curve per arm; of the arms that have all of them."""
    blocks: list[Block] = []
    for line, named in labels.lines([t for t in study.get("tasks", []) if t["name"] in found.tasks]).items():
        main = found.main_metric(next(iter(named.values())))
        scale = 100 if in_percent(main) else 1
        arms = [arm for arm in found.arms if all(found.of(arm, task) for task in named.values())]
        curves = {
            arm: [(n, scale * found.pooled(arm, task)[main]["value"]) for n, task in named.items()] for arm in arms
        }
        if not curves:
            continue
        svg = charts.lines(curves, "training examples", title_of(main), log_x=True)
        if svg:
            blocks.append(Figure(svg, f"{line}: {title_of(main)} against the number of labels"))
        header = ("arm", *(f"{n:,} labels" for n in named))
        rows = [(arm, *(number(main, y / scale) for _, y in points)) for arm, points in curves.items()]
        blocks.append(Table(header, rows, f"{line}: {title_of(main)} by the number of labels"))
    return blocks


def _cost_table(study: Mapping[str, Any], found: Results) -> list[Block]:
    """The main metric of every task stands beside what it takes."""
    costs = {arm["name"]: arm["cost"] for arm in study.get("arms", []) if arm.get("cost")}
    if not costs:
        return []
    measured = next(iter(costs.values()))
    header = (
        "arm", *(f"{task}: {title_of(found.main_metric(task))}" for task in found.tasks),
        "parameters", "MB on disk", "p50 / p99 ms, one at a time", "p50 / p99 ms, of 32", "reviews a second",
        "GPU memory (MB)" if measured["device"] == "cuda" else "memory (MB)",
    )  # fmt: skip
    rows = [(arm, *(percent(found, arm, task) for task in found.tasks), *_cells(cost)) for arm, cost in costs.items()]
    caption = f"Cost per review, text to answer, on {measured['device']} with {measured['threads']} thread(s)"
    return [Table(header, rows, f"{caption}; main metrics with their 95% intervals")]


def _cells(cost: Mapping[str, Any]) -> list[str]:
    one, many = cost["batch_1"], cost["batch_32"]
    return [
        f"{cost['parameters']:,}",
        f"{cost['bytes'] / 1e6:.1f}",
        f"{one['p50_ms']:.2f} / {one['p99_ms']:.2f}",
        f"{many['p50_ms']:.2f} / {many['p99_ms']:.2f}",
        f"{cost['reviews_per_second']:,.0f}",
        f"{cost['peak_bytes'] / 1e6:,.0f}",
    ]
