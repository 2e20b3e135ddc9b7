"""The report of a study, computed from the cells' predictions; report.md is a page of it."""

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.results import Result
from amazon_electra.beam_jobs.model_folder.config import shorten_task
from amazon_electra.model.arms import TFIDF_ARM
from amazon_electra.model.encoders.known import warn_of_amazon, warn_of_languages
from amazon_electra.model.evaluation.metrics import list_figures
from amazon_electra.model.questions.forecast import Forecast, forecast_gain
from amazon_electra.model.questions.wrong_labels import is_claimed
from amazon_electra.model.report.document import convert_to_page, render_template
from amazon_electra.model.report.figures import draw_results
from amazon_electra.model.report.formats import (
    format_change,
    format_number,
    format_range,
    format_with_interval,
    get_title,
)
from amazon_electra.model.report.inputs import ReportInput, read_report_input
from amazon_electra.model.report.owner import Owner
from amazon_electra.model.report.results import Difference, Results, load_results

MANY = 6
"""Comparisons above which the answer counts those without evidence, and names only the others."""
MAX_CLASSES = 10
"""Up to so many classes of a task have a row each; corpora may have 200."""
MORE_LABELS = 200
"""Labels whose worth is forecast from the label curve."""


@dataclass(frozen=True)
class ReportResult(Result):
    """The content of report.json, which a dashboard or a later comparison reads."""

    answer: str = ""
    best: dict[str, str] = field(default_factory=dict)
    """The best arm of each task; empty where no cell says."""
    results: list[dict[str, Any]] = field(default_factory=list)
    """A row for each task and arm with its metrics and their intervals."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    """A row for each comparison."""
    report: str = ""
    """The page."""
    markdown: str = ""
    """A summary of it, in Markdown."""


def write_report(study: str | Path, output: str | Path) -> ReportResult:
    """Write report.html, report.md and report.json of a study.json; return the last's content."""
    output, base, given = Path(output), Path(study).parent, read_report_input(Path(study))
    content = gather(given, base)
    results: Results = content["results"]
    output.mkdir(parents=True, exist_ok=True)
    summary = render_template("summary.md.j2", **content)
    page = convert_to_page(given.title, render_template("report.md.j2", **content))
    (output / "report.md").write_text(summary, encoding="utf-8")
    (output / "report.html").write_text(page, encoding="utf-8")
    rows, compared = [], []
    for task, arm in itertools.product(results.tasks, results.arms):
        if values := results.pool_metrics(arm, task):
            seeds = [cell.seed for cell in results.list_cells(arm, task)]
            about = {"seeds": seeds, "seed_count": results.count_seeds(arm, task)}
            rows.append({"arm": arm, "task": task, **about, "metrics": values})
    for d in content["differences"]:
        about = {"words": d.words, "one_checkpoint": d.one_checkpoint, **asdict(d.comparison)}
        evidence = d.comparison.is_significant
        compared.append({"a": d.a, "b": d.b, "task": d.task, "evidence": evidence, **about})
    best = {task: results.find_best_arm(task) for task in results.tasks}
    found = {"best": best, "results": rows, "differences": compared}
    pages = {"report": str(output / "report.html"), "markdown": str(output / "report.md")}
    result = ReportResult.of({"title": given.title, "answer": content["answer"]} | found | pages)
    write_json(output / "report.json", result.content)
    return result


def gather(study: ReportInput, base: Path) -> dict[str, Any]:
    """Return what the templates show, by the names that they have for it."""
    results = load_results(study, study.cells, base)
    differences = results.compare_pairs(study.comparisons)
    cells = [results.list_cells(*pair) for pair in itertools.product(results.arms, results.tasks)]
    owners = [Owner.read(base / model) for model in study.models]
    curve = build_label_curve(study, base, results) if study.curve else None
    mains = [results.get_main_metric(task) for task in results.tasks]
    others = itertools.chain(*map(results.list_metrics, results.tasks))
    unread = [
        warn_of_languages(origin, facts.counts.get("language_sample", {}))
        for facts in study.stages
        for origin in study.origins.values()
    ]
    store = ["--store", study.store] if study.store else []
    return {
        "study": study,
        "results": results,
        "differences": differences,
        "answer": compose_answer(results, differences),
        "owners": owners,
        "summaries": summarize_tasks(study, results, owners, curve.gains if curve else []),
        "score_command": shlex.join(["amazon-electra", "score", "--dump", "new.csv", *store]),
        "results_svg": draw_results(results),
        "amazon": {name: warn_of_amazon(origin) for name, origin in study.origins.items()},
        "unread_languages": [text for text in unread if text],
        "has_single_seeds": any(len(own) < 2 for own in cells),
        "has_two_seeds": any(len({cell.seed for cell in own}) == 2 for own in cells),
        "metrics": list(dict.fromkeys([*mains, *others])),
        "classes": list_classes(results),
        "curve": curve,
    }


@dataclass(frozen=True)
class Gain:
    """The worth of more labels to an arm."""

    task: str
    arm: str
    worth: Forecast


@dataclass(frozen=True)
class TaskSummary:
    """A task in one sentence, and what its owner does next."""

    task: str
    name: str
    """The task as its owner knows it: of a label the column."""
    sentence: str
    advice: str
    price: str
    """Cost of the model: CPU seconds of its training, megabytes, and milliseconds a review."""


def summarize_tasks(
    study: ReportInput, results: Results, owners: Sequence[Owner], gains: Sequence[Gain]
) -> list[TaskSummary]:
    """Return the summary of each task that has a best arm."""
    found = []
    for task in results.tasks:
        best = results.find_best_arm(task)
        if not best:
            continue
        owner = next((one for one in owners if one.task == task), None)
        advice = advise(owner, [one for one in gains if one.task == task]) if owner else ""
        seconds = {c.arm: c.cpu_seconds for c in study.cells if c.task == task and c.cpu_seconds}
        price = []
        if best in seconds:
            others = [f"{name} {own:,.0f}" for name, own in seconds.items() if name != best]
            compared = f" ({', '.join(others)})" if others else ""
            price.append(f"its training took {seconds[best]:,.0f} CPU seconds{compared}")
        if owner and owner.cost:
            size, time = owner.cost["megabytes"], owner.cost["milliseconds"]
            price.append(f"the model takes {size:,.1f} MB and {time:,.1f} ms a review on a CPU")
        shown = f"{best}: {'; '.join(price)}." if price else ""
        sentence = describe_best(results, task, best)
        found.append(TaskSummary(task, shorten_task(task), sentence, advice, shown))
    return found


def describe_best(results: Results, task: str, best: str) -> str:
    """Return how good the best arm of a task is, alone and compared with the simple ways."""
    metrics, about = results.pool_metrics(best, task), results.read_about(task)
    metric = "accuracy" if "accuracy" in metrics else results.get_main_metric(task)
    reached, n = format_with_interval(metric, metrics[metric]), f"{about['n']:,} test examples"
    parts = [f"{best} has {reached} on {n} ({get_title(metric)})"]
    if metric == "accuracy":
        parts = [f"{best} is right for {reached} of {n}"]
    if best != TFIDF_ARM and results.list_cells(TFIDF_ARM, task):
        every = results.compare_pairs([(best, TFIDF_ARM)])
        [c] = [one.comparison for one in every if one.task == task]
        gain = f"{format_change(c.metric, c.difference)} ({format_range(c)})"
        named = "" if c.metric == metric else f" of {get_title(c.metric)}"
        parts.append(f"{gain}{named} over TF-IDF")
    if "confusion" in about:
        labelled = np.sum(about["confusion"], axis=1)
        share = format_number("accuracy", float(labelled.max() / labelled.sum()))
        parts.append(f"where answering the most frequent class is right for {share}")
    sentence = f"{', '.join(parts)}."
    if best in results.untrained and best != TFIDF_ARM:
        other = results.find_best_arm(task, without=best) or "none"
        sentence += (
            f" The encoder of {best} was not pre-trained, so it is no model to keep: the best "
            f"of the others is {other}."
        )
    return sentence


def advise(owner: Owner, gains: Sequence[Gain]) -> str:
    """Return what the owner of a model does next."""
    giveaway, wrong = owner.found.get("giveaway"), owner.found.get("wrong_labels", {})
    if giveaway and not giveaway["is_title"]:
        return "find out what gives the labels away before you use it."
    if is_claimed(wrong.get("low"), wrong.get("n", 0)):
        listed = f"{wrong['listed']:,} labels in suspicious.csv"
        return f"look at the {listed}, where those most likely wrong come first."
    worth = max((one.worth for one in gains), key=lambda one: one.gain, default=None)
    if worth and worth.low > 0:
        return f"label more reviews. {worth.describe()}"
    return (
        f"look where it is weak: {owner.weak[0]}." if owner.weak else "label new reviews with it."
    )


def compose_answer(results: Results, differences: Sequence[Difference]) -> str:
    """Compose the answer: which arm is better, by how much, on which tasks."""
    if not differences:
        parts = []
        for task in results.tasks:
            metric = results.get_main_metric(task)
            value = results.pool_metrics(results.arms[0], task)[metric]["value"]
            parts.append(f"{format_number(metric, value)} {get_title(metric)} on {task}")
        reached = f"{results.arms[0]} reaches {', '.join(parts)}"
        return f"{reached}; there is no second model to compare it with."
    found = [d for d in differences if d.comparison.is_significant]
    others = [d for d in differences if not d.comparison.is_significant]
    by_words: dict[str, list[str]] = {}
    for d in [*found, *others] if len(differences) <= MANY else found:
        c = d.oriented
        scope = " of this one checkpoint" if d.one_checkpoint else ""
        effect = f"{get_title(c.metric)} {format_change(c.metric, c.difference)}{scope}"
        words = d.words if c.is_significant else f"there is {d.words}"
        shown = f"{d.task} ({effect}, 95% interval {format_range(c)})"
        by_words.setdefault(words, []).append(shown)
    clauses = [f"{words} on {', '.join(tasks)}" for words, tasks in by_words.items()]
    if others and len(differences) > MANY:
        which = f"the other {len(others)}" if found else f"any of {len(others)}"
        clauses.append(f"there is no evidence of a difference in {which} comparisons")
    sentence = "; ".join(clauses) + "."
    return sentence[0].upper() + sentence[1:]


def list_classes(results: Results) -> list[dict[str, Any]]:
    """Return the figures of each class of every `task` and `arm`, over the seeds together."""
    found = []
    for task, arm in itertools.product(results.tasks, results.arms):
        cells = results.list_cells(arm, task)
        labels = cells[0].about.get("labels", []) if cells else []
        if len(labels) <= MAX_CLASSES:
            figures = list_figures([cell.predictions for cell in cells], labels) if labels else []
            found += [one | {"task": task, "arm": arm} for one in figures]
    return found


@dataclass(frozen=True)
class LabelCurve:
    """Each task's main metric by the number of labels."""

    columns: list[str]
    rows: list[list[str]]
    gains: list[Gain]


def build_label_curve(study: ReportInput, base: Path, results: Results) -> LabelCurve:
    """Return the curve through the cells with fewer labels and those with all, in `results`."""
    points = {
        n: load_results(study, [cell for cell in study.curve if cell.labels == n], base)
        for n in sorted({cell.labels for cell in study.curve})
    } | {0: results}
    rows, gains = list[list[str]](), list[Gain]()
    for task, arm in itertools.product(results.tasks, results.arms):
        metric = results.get_main_metric(task)
        cells = {n: own for n, of in points.items() if (own := of.list_cells(arm, task))}
        if len(cells) < 2:
            continue
        values = {n: points[n].pool_metrics(arm, task)[metric] for n in cells}
        labels = [n or cells[n][0].trained_with for n in cells]
        if metric == "accuracy" and all(labels):
            shares = [one["value"] for one in values.values()]
            tests = [own[0].about["n"] for own in cells.values()]
            worth = forecast_gain(labels, shares, tests, MORE_LABELS)
            gains += [Gain(task, arm, worth)] if worth else []
        shown = [format_with_interval(metric, values[n]) if n in values else "–" for n in points]
        rows.append([task, arm, get_title(metric), *shown])
    return LabelCurve([f"{n:,} labels" if n else "all" for n in points], rows, gains)
