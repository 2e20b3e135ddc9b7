"""The report of a study: report.html (self-contained, rendered from report.md.j2), a summary of one
page in report.md, and report.json. All that it shows is computed from the cells' predictions.
"""

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.limits import COMMON_TEXTS
from amazon_electra.beam_jobs.core.results import Result
from amazon_electra.beam_jobs.model_folder.config import shorten_task
from amazon_electra.model.arms import TFIDF_ARM
from amazon_electra.model.encoders.known import warn_of_amazon, warn_of_languages
from amazon_electra.model.evaluation.metrics import list_class_figures
from amazon_electra.model.questions.forecast import Forecast, forecast_gain
from amazon_electra.model.questions.wrong_labels import is_claimed
from amazon_electra.model.report.document import convert_to_page, render_template
from amazon_electra.model.report.figures import draw_label_curve, draw_results
from amazon_electra.model.report.formats import (
    format_change,
    format_number,
    format_range,
    format_with_interval,
    get_title,
)
from amazon_electra.model.report.inputs import ArmFacts, ReportInput, read_report_input
from amazon_electra.model.report.owner import Owner, write_errors_page
from amazon_electra.model.report.results import (
    Difference,
    Results,
    load_results,
    pool_differences,
    read_mistakes,
)

FEW = 4
"""Comparisons up to which the answer has every effect; of more, only those that differ."""
MANY = 10
"""Comparisons above which those without evidence are counted and not named."""
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


def write_report(study: ReportInput | str | Path, output: str | Path) -> ReportResult:
    """Write report.html, report.md and report.json; return the last one's content.

    `study` is what the report shows, or a file of it, to which its folders are relative.
    """
    output, base = Path(output), Path()
    if not isinstance(study, ReportInput):
        base, study = Path(study).parent, read_report_input(Path(study))
    content = gather(study, base)
    output.mkdir(parents=True, exist_ok=True)
    summary = render_template("summary.md.j2", **content)
    page = convert_to_page(study.title, render_template("report.md.j2", **content))
    (output / "report.md").write_text(summary, encoding="utf-8")
    (output / "report.html").write_text(page, encoding="utf-8")
    for owner, model in zip(content["owners"], study.models, strict=True):
        write_errors_page(base / model, output / owner.page, study.title)
    result = ReportResult.of(
        {
            "title": study.title,
            "answer": content["answer"],
            **summarize(content["results"], content["differences"]),
            "report": str(output / "report.html"),
            "markdown": str(output / "report.md"),
        }
    )
    write_json(output / "report.json", result.content)
    return result


def summarize(results: Results, differences: Sequence[Difference]) -> dict[str, Any]:
    """Return the rows of report.json."""
    rows = [
        {
            "arm": arm,
            "task": task,
            "seeds": [cell.seed for cell in results.list_cells(arm, task)],
            "seed_count": results.count_seeds(arm, task),
            "only_answer": results.describe_only_answer(arm, task),
            "metrics": values,
        }
        for task, arm in itertools.product(results.tasks, results.arms)
        if (values := results.pool_metrics(arm, task))
    ]
    compared = [
        {
            "a": d.a,
            "b": d.b,
            "task": d.task,
            "evidence": d.comparison.is_significant,
            "words": d.words,
            "one_checkpoint": d.one_checkpoint,
            "same_answers": d.same_answers,
            **asdict(d.comparison),
        }
        for d in differences
    ]
    best = {task: results.find_best_arm(task) for task in results.tasks}
    return {"best": best, "results": rows, "differences": compared}


def gather(study: ReportInput, base: Path) -> dict[str, Any]:
    """Return what the templates show, by the names that they have for it."""
    results = load_results(study, study.cells, base)
    differences = results.compare_pairs(study.comparisons)
    tasks, arms = results.tasks, results.arms
    every = list(itertools.product(tasks, arms))
    cells = [results.list_cells(arm, task) for task, arm in every]
    owners = [Owner.read(base / model, place) for place, model in enumerate(study.models)]
    curve = build_label_curve(study, base, results) if study.curve else None
    mains = [results.get_main_metric(task) for task in tasks]
    others = itertools.chain(*map(results.list_metrics, tasks))
    unread = [
        warn_of_languages(origin, facts.counts.get("language_sample", {}))
        for facts in study.stages
        for origin in study.origins.values()
    ]
    only = [results.describe_only_answer(arm, task) for task, arm in every]
    return {
        "study": study,
        "results": results,
        "differences": differences,
        "answer": compose_answer(results, differences),
        "pooled": pool_differences([results], list({(d.a, d.b): None for d in differences})),
        "owners": owners,
        "summaries": summarize_tasks(study, results, owners, curve.gains if curve else []),
        "results_svg": draw_results(results),
        "commands": list_commands(study, owners),
        "amazon": {name: warn_of_amazon(origin) for name, origin in study.origins.items()},
        "unread_languages": [text for text in unread if text],
        "has_single_seeds": any(len(own) < 2 for own in cells),
        "has_two_seeds": any(len({cell.seed for cell in own}) == 2 for own in cells),
        "only_answers": [text for text in only if text],
        "metrics": list(dict.fromkeys([*mains, *others])),
        "classes": list_classes(results),
        "curve": curve,
        "costs": build_costs(study),
        "withheld": describe_withheld_texts(study, tasks),
        "mistakes": [(own[0], rows) for own in cells if own and (rows := read_mistakes(own[0]))],
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
    sentence: str
    advice: str
    price: str
    """Cost of the model: CPU seconds of its training, megabytes, and milliseconds a review."""

    @property
    def name(self) -> str:
        """The task as its owner knows it: of a label the column."""
        return shorten_task(self.task)


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
        seconds = {
            cell.arm: cell.cpu_seconds
            for cell in study.cells
            if cell.task == task and cell.cpu_seconds
        }
        price = []
        if best in seconds:
            others = [f"{name} {own:,.0f}" for name, own in seconds.items() if name != best]
            compared = f" ({', '.join(others)})" if others else ""
            price.append(f"its training took {seconds[best]:,.0f} CPU seconds{compared}")
        if owner and owner.cost:
            size, time = owner.cost["megabytes"], owner.cost["milliseconds"]
            price.append(f"the model takes {size:,.1f} MB and {time:,.1f} ms a review on a CPU")
        shown = f"{best}: {'; '.join(price)}." if price else ""
        found.append(TaskSummary(task, describe_best(results, task, best), advice, shown))
    return found


def describe_best(results: Results, task: str, best: str) -> str:
    """Return how good the best arm of a task is, alone and compared with the simple ways."""
    metrics, about = results.pool_metrics(best, task), results.read_about(task)
    metric = "accuracy" if "accuracy" in metrics else results.get_main_metric(task)
    reached = format_with_interval(metric, metrics[metric])
    if metric == "accuracy":
        parts = [f"{best} is right for {reached} of {about['n']:,} test examples"]
    else:
        parts = [f"{best} has {reached} on {about['n']:,} test examples ({get_title(metric)})"]
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


def list_commands(study: ReportInput, owners: Sequence[Owner]) -> list[str]:
    """Return what the owner of the models types next; nothing where no model was kept."""
    if not owners:
        return []
    store = ["--store", study.store] if study.store else []
    score = shlex.join(["amazon-electra", "score", "--dump", "new.csv", *store])
    return [
        f"# a copy of new reviews with the answers beside their columns\n{score}",
        f"# the answers that are right in 97%, `ask` for the others\n"
        f"{study.command} --target-accuracy 0.97",
        f"# this report again\n{study.command}",
    ]


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
    shown = [d for d in differences if d.comparison.is_significant]
    others = [d for d in differences if not d.comparison.is_significant]
    clauses = compose_clauses(shown, in_full=True)
    if len(differences) <= MANY:
        clauses += compose_clauses(others, in_full=len(differences) <= FEW)
    elif others:
        which = f"the other {len(others)}" if shown else f"any of {len(others)}"
        clauses.append(
            f"there is no evidence of a difference in {which} comparison{'s' * (len(others) > 1)}"
        )
    sentence = "; ".join(clauses) + "."
    return sentence[0].upper() + sentence[1:]


def compose_clauses(differences: Sequence[Difference], in_full: bool) -> list[str]:
    """Return a clause for each finding with its tasks, and with the effects if `in_full`."""
    clauses: dict[str, list[str]] = {}
    for difference in differences:
        c = difference.oriented
        effect = (
            f" ({get_title(c.metric)} {format_change(c.metric, c.difference)}{difference.scope}, "
            f"95% interval {format_range(c)})"
        )
        if difference.same_answers:
            words = f"{difference.a} and {difference.b} give the same answers"
        else:
            words = difference.words if c.is_significant else f"there is {difference.words}"
        clauses.setdefault(words, []).append(f"{difference.task}{effect if in_full else ''}")
    return [f"{words} on {', '.join(tasks)}" for words, tasks in clauses.items()]


@dataclass(frozen=True)
class ClassFigures:
    """Recall and precision of a class, over the seeds together."""

    task: str
    arm: str
    label: str
    n: int
    """Test examples."""
    is_rarest: bool
    recall: float | None
    precision: float | None


def list_classes(results: Results) -> list[ClassFigures]:
    """Return each class of every task and arm."""
    found = []
    for task, arm in itertools.product(results.tasks, results.arms):
        about = [c.about for c in results.list_cells(arm, task) if "labels" in c.about]
        if not about or len(about[0]["labels"]) > MAX_CLASSES:
            continue
        if "confusion" in about[0]:
            confusion = np.sum([one["confusion"] for one in about], axis=0)
            figures = list_class_figures(confusion, about[0]["labels"])
        else:  # of several classes at once the first seed stands for all
            about, figures = about[:1], about[0]["classes"]
        fewest, *others = sorted(one["n"] for one in figures)
        rarest = fewest if others and fewest < others[0] else None
        for one in figures:
            n, is_rarest = one["n"] // len(about), one["n"] == rarest
            figure = (one["label"], n, is_rarest, one["recall"], one["precision"])
            found.append(ClassFigures(task, arm, *figure))
    return found


@dataclass(frozen=True)
class LabelCurve:
    """Each task's main metric against the number of labels."""

    svg: str
    columns: list[str]
    rows: list[list[str]]
    gains: list[Gain]
    pooled: list[Difference]


def build_label_curve(study: ReportInput, base: Path, results: Results) -> LabelCurve:
    """Return the curve through the cells with fewer labels and those with all, in `results`."""
    points: dict[int, Results] = {}
    for n in sorted({cell.labels for cell in study.curve}):
        points[n] = load_results(study, [cell for cell in study.curve if cell.labels == n], base)
    points[0] = results
    panels, rows, gains = [], list[list[str]](), list[Gain]()
    for task in results.tasks:
        metric, lines = results.get_main_metric(task), {}
        for arm in results.arms:
            pooled = [
                (n, own, of.pool_metrics(arm, task)[metric])
                for n, of in points.items()
                if (own := of.list_cells(arm, task))
            ]
            if len(pooled) < 2:
                continue
            every = [(n or own[0].trained_with, v["value"]) for n, own, v in pooled]
            lines[arm] = [(n, value) for n, value in every if n]
            if metric == "accuracy" and len(lines[arm]) == len(pooled):
                tests = [own[0].about["n"] for _, own, _ in pooled]
                labels, shares = zip(*lines[arm], strict=True)
                worth = forecast_gain(labels, shares, tests, MORE_LABELS)
                gains += [Gain(task, arm, worth)] if worth else []
            found = {n: format_with_interval(metric, values) for n, _, values in pooled}
            rows.append([task, arm, get_title(metric), *(found.get(n, "–") for n in points)])
        panels.append((f"{get_title(metric)} on test of {task}", get_title(metric), lines))
    columns = [f"{n:,} labels" if n else "all" for n in points]
    pairs = list(itertools.combinations(next(iter(points.values())).arms, 2))
    differences = pool_differences([results, *list(points.values())[:-1]], pairs)
    return LabelCurve(draw_label_curve(panels), columns, rows, gains, differences)


@dataclass(frozen=True)
class Costs:
    """Cost of pre-training and use of each arm."""

    columns: list[str]
    rows: list[list[str]]
    measured: dict[str, Any] | None
    """latency.json of an arm, with the `device` and `threads` of all."""


def build_costs(study: ReportInput) -> Costs | None:
    """Return a row for each arm whose cost is known; columns without a value are left out."""
    known = {arm.name: row for arm in study.arms if any((row := format_costs(arm)).values())}
    if not known:
        return None
    columns = [c for c in next(iter(known.values())) if any(row[c] for row in known.values())]
    rows = [[name, *(row[c] or "–" for c in columns)] for name, row in known.items()]
    measured = next((arm.cost for arm in study.arms if arm.cost), None)
    return Costs(["model", *columns], rows, measured)


def format_costs(arm: ArmFacts) -> dict[str, str]:
    """Return the costs of an arm by column, empty where nothing is known."""
    cost = arm.cost or {}

    def show(value: float | None, form: str) -> str:
        return f"{value:{form}}" if value else ""

    def show_times(batch: str) -> str:
        return f"{cost[batch]['p50_ms']:.2f} / {cost[batch]['p99_ms']:.2f}" if cost else ""

    return {
        "tokens of pre-training": show(arm.tokens, ",.0f"),
        "FLOPs of matrix products": show(arm.matrix_flops, ".3e"),
        "seconds": show(arm.seconds, ",.0f"),
        "parameters": show(cost.get("parameters"), ","),
        "MB of weights": show(cost.get("bytes", 0) / 1e6, ".1f"),
        "p50 / p99 ms, one at a time": show_times("batch_1"),
        "p50 / p99 ms, of 32": show_times("batch_32"),
        "reviews a second": show(cost.get("reviews_per_second"), ",.0f"),
        "MB of memory": show(cost.get("peak_bytes", 0) / 1e6, ",.0f"),
    }


@dataclass(frozen=True)
class Withheld:
    """The tasks whose test texts were withheld from every pre-training of a study."""

    tasks: list[str]
    arms: list[str]
    counts: dict[str, int]
    """Withheld texts by reason."""
    common: int = COMMON_TEXTS


def describe_withheld_texts(study: ReportInput, tasks: Sequence[str]) -> Withheld | None:
    """Return what was withheld; None where no arm was pre-trained here.

    beam_jobs/deduplication/evaluation_texts.py withholds no text of fewer than three words, and
    looks within longer texts only for those of eight words or more.
    """
    pretrained = {arm.name: arm.held_out for arm in study.arms if arm.held_out is not None}
    if not pretrained:
        return None
    # by reason, of the corpus stage: its own dev and test sets, and texts of other ones
    counted = next((s.counts for s in study.stages if s.counts.get("splits")), {})
    splits, dropped = counted.get("splits") or {}, counted.get("dropped") or {}
    counts = {f"own {name}": int(splits.get(name, 0)) for name in ("dev", "test") if splits}
    counts |= {n: int(k) for n, k in dropped.items() if n.startswith("withheld")}
    withheld = [task for task in tasks if all(task in own for own in pretrained.values())]
    return Withheld(withheld, list(pretrained), counts)
