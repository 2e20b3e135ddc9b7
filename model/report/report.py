"""The report of a study: `python -m model.report.report --study FILE --output DIR`.

FILE is the JSON that the graph writes: title, question, stages, pre-training logs
and the evaluated cells. Everything printed is computed from the cells' predictions. Writes
report.md, report.html (self-contained), report.json and model/, the discriminator's folder with its
model card.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from beam_jobs.job.command import main
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import write_json
from beam_jobs.job.settings import read_options
from model.options import ReportOptions
from model.report import card, contamination
from model.report.costs import build_cost_blocks
from model.report.crossings import build_crossing_blocks
from model.report.document import Block, Code, Document, Heading, Paragraph, Table, join_names
from model.report.probes import build_probe_blocks, warn_of_unchanged_arms
from model.report.results import Difference, Results, load_results
from model.report.sections import (
    build_difference_chart,
    build_learning_curves,
    build_pretraining_curves,
    build_result_tables,
    build_run_details,
    build_vocabulary_blocks,
    describe_only_answer,
    format_change,
    format_main_metric,
    format_number,
    format_range,
    get_title,
)
from model.report.settings import build_setting_blocks

FEW = 4
"""Comparisons up to which the answer has every effect; of more, only those that differ."""
MANY = 10
"""Comparisons above which those without evidence are counted and not named."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = read_options(ReportOptions, argv, "python -m model.report.report", __doc__)
    return write_report(arguments.study, arguments.output)


def write_report(study_file: Path, output: Path) -> dict[str, Any]:
    """Write report.md, report.html, report.json and the model folder; return report.json."""
    study = _read_study(study_file)
    results = load_results(study["cells"], study_file.parent, study.get("arms") or [])
    differences = results.compare_pairs([tuple(pair) for pair in study.get("comparisons") or []])
    answer = compose_answer(results, differences)
    output.mkdir(parents=True, exist_ok=True)
    document = Document(
        study.get("title") or "Report",
        _build_blocks(study, study_file.parent, results, differences, answer),
    )
    (output / "report.md").write_text(document.render_markdown(), encoding="utf-8")
    (output / "report.html").write_text(document.render_html(), encoding="utf-8")
    if study.get("model"):
        card.write_model_folder(
            study_file.parent / study["model"], output / "model", study, results, answer
        )
    summary = _build_summary(study, results, differences, answer, output)
    write_json(output / "report.json", summary)
    return summary


def _read_study(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise UserError(f"{file}: no such file; --study is the JSON written after the evaluations")
    try:
        study = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{file}, line {error.lineno}: not JSON ({error.msg})") from error
    if not study.get("cells"):
        raise UserError(f"{file}: no cells; there is nothing to report")
    return study


def compose_answer(results: Results, differences: list[Difference]) -> str:
    """Compose the answer: which arm is better, by how much, on which tasks."""
    if not differences:
        return _describe_only_arm(results)
    shown, others = (
        [d for d in differences if bool(d.comparison.is_significant) is evidence]
        for evidence in (True, False)
    )
    told = _compose_clauses(shown, in_full=True)
    if len(differences) <= MANY:
        told += _compose_clauses(others, in_full=len(differences) <= FEW)
    elif others:
        which = f"the other {len(others)}" if shown else f"any of {len(others)}"
        told.append(
            f"there is no evidence of a difference in {which} comparison{'s' * (len(others) > 1)}"
        )
    sentence = "; ".join(told) + "."
    return sentence[0].upper() + sentence[1:]


def _describe_only_arm(results: Results) -> str:
    parts = []
    for task in results.tasks:
        metric = results.get_main_metric(task)
        value = results.pool_metrics(results.arms[0], task)[metric]["value"]
        parts.append(f"{format_number(metric, value)} {get_title(metric)} on {task}")
    return (
        f"{results.arms[0]} reaches {', '.join(parts)}; there is no second arm to compare it with."
    )


def _compose_clauses(differences: list[Difference], in_full: bool) -> list[str]:
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


def _build_blocks(
    study: Mapping[str, Any],
    base: Path,
    results: Results,
    differences: list[Difference],
    answer: str,
) -> list[Block]:
    question = study.get("question") or _compose_question(results)
    blocks: list[Block] = [
        Heading("Question"),
        Paragraph(question),
        Heading("Answer"),
        Paragraph(answer, "answer"),
    ]
    blocks += _build_warnings(study, results)
    blocks += [Heading("Results"), *build_result_tables(results)]
    if differences:
        blocks += [Heading("Differences"), *_build_difference_blocks(differences)]
    blocks += build_crossing_blocks(study, differences)
    blocks += build_cost_blocks(study, results)
    blocks += build_pretraining_curves(study, base)
    blocks += build_probe_blocks(study, base)
    blocks += _build_data_blocks(study, results.tasks)
    blocks += build_setting_blocks(study, results)
    blocks += [Heading("Each run"), *build_learning_curves(results), *build_run_details(results)]
    blocks += _build_command_blocks(study)
    return blocks


def _compose_question(results: Results) -> str:
    if len(results.arms) < 2:
        return f"How well does {results.arms[0]} do on {join_names(results.tasks)}?"
    others, tasks = join_names(results.arms[1:]), join_names(results.tasks)
    return f"Is {results.arms[0]} better than {others} on {tasks}, and by how much?"


def _build_warnings(study: Mapping[str, Any], results: Results) -> list[Block]:
    blocks = contamination.warn_of_contamination(study, results.tasks)
    blocks += warn_of_unchanged_arms(study)
    blocks += [
        Paragraph(f"The {_name_part(part['name'])} was left out: {part['why']}.", "warning")
        for part in study.get("left_out", [])
    ]
    blocks += [
        Paragraph(text, "warning")
        for task in results.tasks
        for arm in results.arms
        if (text := describe_only_answer(results, arm, task))
    ]
    if any(
        len(results.list_cells(arm, task)) < 2 for arm in results.arms for task in results.tasks
    ):
        text = (
            "Some arms have one seed: their intervals count the test examples only, not how much "
            "seeds vary."
        )
        blocks.append(Paragraph(text))
    return blocks


def _name_part(name: str) -> str:
    """Return what was left out of a study: an arm, unless its name says that it is a task."""
    return name if name.startswith("task ") else f"arm {name}"


def _build_difference_blocks(differences: list[Difference]) -> list[Block]:
    header = (
        "task",
        "comparison",
        "metric",
        "difference",
        "95% interval",
        "p",
        "p (Holm)",
        "p (randomization)",
        "finding",
    )
    rows = [
        (
            d.task,
            f"{d.a} − {d.b}",
            get_title(d.comparison.metric),
            format_change(d.comparison.metric, d.comparison.difference),
            format_range(d.comparison),
            format_p(d.comparison.p),
            format_p(d.comparison.p_holm),
            format_p(d.comparison.p_randomization),
            d.finding,
        )
        for d in differences
    ]
    how = (
        "Arms are compared on the same test examples, seed by seed. The interval and p count both "
        "the examples (paired bootstrap) and the seeds (two-way random effects, t with "
        "Satterthwaite's degrees of freedom). p (randomization) swaps the two arms' answers to "
        "randomly chosen examples, in all seeds together, and takes the seeds as they are; with "
        "one seed it is p (of accuracies: McNemar's exact test, by sampling). p (Holm) is p "
        "corrected for all tasks and pairs of this table (Holm's step-down method); a difference "
        "is called one where p (Holm) is below 0.05."
    )
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
    return [*build_difference_chart(differences), Table(header, rows), Paragraph(how)]


def format_p(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _build_data_blocks(study: Mapping[str, Any], tasks: Sequence[str]) -> list[Block]:
    blocks: list[Block] = []
    dump = study.get("dump") or {}
    if dump:
        about = [(name, _format_detail(value)) for name, value in dump.items()]
        blocks += [Heading("The dump"), Table(("what", "value"), about)]
    stages = study.get("stages") or []
    if stages:
        rows = [
            (
                s["stage"],
                _format_counts(s.get("counts")),
                f"{s.get('seconds') or 0:.1f}",
                f"{s.get('cpu_seconds') or 0:.1f}",
            )
            for s in stages
        ]
        blocks += [
            Heading("Counts of each stage"),
            Table(("stage", "counts", "seconds", "CPU seconds"), rows),
        ]
    blocks += [Paragraph(text) for s in stages if (text := describe_columns(s.get("counts")))]
    blocks += [block for s in stages for block in build_vocabulary_blocks(s.get("counts"))]
    blocks += contamination.describe_withheld_texts(study, tasks)
    lineage = [("dump", dump["fingerprint"])] if dump.get("fingerprint") else []
    lineage += [
        (s["stage"], s.get("fingerprint") or "")
        for s in stages
        if s.get("fingerprint") != dump.get("fingerprint")
    ]
    lineage += [row for arm in study.get("arms", []) for row in _list_encoders(arm)]
    if lineage:
        after = "Each fine-tuning's own is in the table of runs below."
        blocks += [Heading("Lineage"), Table(("stage", "fingerprint"), lineage), Paragraph(after)]
    return blocks


def _list_encoders(arm: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and fingerprint of each of an arm's pre-trainings."""
    name = f"encoder of {arm['name']}"
    if seeds := arm.get("pretrainings"):
        return [(f"{name}, pre-training seed {one['seed']}", one["fingerprint"]) for one in seeds]
    return [(name, arm["fingerprint"])] if "fingerprint" in arm else []


def describe_columns(counts: Mapping[str, Any] | None) -> str:
    """Return which columns of the dump gave which field, and which were not used, each with the
    field whose names are closest.
    """
    columns = (counts or {}).get("columns") or {}
    if not columns:
        return ""
    used = [f"{field} ← {', '.join(names)}" for field, names in columns["used"].items()]
    unused = [n + (f" ({field}?)" if field else "") for n, field in columns["unused"].items()]
    return f"Columns of the dump: {', '.join(used)}; not used: {', '.join(unused) or 'none'}."


def _build_command_blocks(study: Mapping[str, Any]) -> list[Block]:
    commands = study.get("commands") or ([study["command"]] if study.get("command") else [])
    lines = [c if isinstance(c, str) else shlex.join(c) for c in commands]
    return [Heading("To make it again"), Code("\n".join(lines))] if lines else []


def _format_counts(counts: Mapping[str, Any] | None) -> str:
    """Format the numbers of a stage's result, which also names folders and fingerprints."""
    numbers = {name: value for name, value in (counts or {}).items() if _is_count(name, value)}
    return ", ".join(f"{name} {_format_detail(value)}" for name, value in numbers.items())


def _is_count(name: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(_is_count(key, inner) for key, inner in value.items())
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and not name.endswith("seconds")
    )


def _format_detail(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, Mapping):
        return f"({_format_counts(value)})" if value else "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_detail, value))
    return str(value)


def _build_summary(
    study: Mapping[str, Any],
    results: Results,
    differences: list[Difference],
    answer: str,
    output: Path,
) -> dict[str, Any]:
    """Return report.json: what a dashboard or a later comparison needs."""
    return {
        "title": study.get("title") or "Report",
        "answer": answer,
        "results": [
            {
                "arm": arm,
                "task": task,
                "seeds": [c.seed for c in results.list_cells(arm, task)],
                "seeds_told": results.count_seeds(arm, task),
                "only_answer": describe_only_answer(results, arm, task),
                "metrics": values,
            }
            for task in results.tasks
            for arm in results.arms
            if (values := results.pool_metrics(arm, task))
        ],
        "differences": [
            {
                "a": d.a,
                "b": d.b,
                "task": d.task,
                "evidence": d.comparison.is_significant,
                "words": d.words,
                "one_checkpoint": d.one_checkpoint,
                "same_answers": d.same_answers,
            }
            | asdict(d.comparison)
            for d in differences
        ],
        "report": str(output / "report.html"),
        "markdown": str(output / "report.md"),
        "model": str(output / "model") if study.get("model") else None,
        "table": [
            {"arm": arm, "task": task, "value": format_main_metric(results, arm, task)}
            for task in results.tasks
            for arm in results.arms
        ],
    }


if __name__ == "__main__":
    main(run)
