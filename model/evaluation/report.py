"""The report of a study: `python -m model.evaluation.report --study FILE --output DIR`.

FILE is the JSON that the graph (or model.study) writes: title, question, stages, pre-training logs and the evaluated
cells. Everything printed is computed from the cells' predictions. Writes report.md, report.html (self-contained),
report.json and model/, the discriminator's folder with its model card.
"""

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from model.command import UserMistake, main
from model.evaluation import card, leaks, results
from model.evaluation.costs import cost_blocks
from model.evaluation.crossings import crossing_blocks
from model.evaluation.document import Block, Code, Document, Heading, Paragraph, Table
from model.evaluation.results import Difference, Results
from model.evaluation.sections import (
    change,
    curves,
    details,
    difference_chart,
    difference_range,
    learning_curves,
    number,
    percent,
    result_tables,
    title_of,
)
from model.evaluation.settings import setting_blocks
from model.json_file import write_json

FEW = 4
"""Comparisons whose effects all fit into the one sentence; of more, those without a finding are in the table alone."""
MANY = 10
"""Comparisons of which those without a finding are not even named, but counted."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m model.evaluation.report", description=__doc__)
    parser.add_argument("--study", required=True, type=Path, metavar="FILE", help="JSON: stages and evaluated cells")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    arguments = parser.parse_args(argv)
    return report(arguments.study, arguments.output)


def report(study_file: Path, output: Path) -> dict[str, Any]:
    study = _read(study_file)
    found = results.load(study["cells"], study_file.parent)
    differences = found.differences([tuple(pair) for pair in study.get("comparisons") or []])
    answer = answer_of(found, differences)
    output.mkdir(parents=True, exist_ok=True)
    document = Document(study.get("title") or "Report", _blocks(study, study_file.parent, found, differences, answer))
    (output / "report.md").write_text(document.markdown(), encoding="utf-8")
    (output / "report.html").write_text(document.html(), encoding="utf-8")
    if study.get("model"):
        card.write_model_folder(study_file.parent / study["model"], output / "model", study, found, answer)
    summary = _summary(study, found, differences, answer, output)
    write_json(output / "report.json", summary)
    return summary


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise UserMistake(f"{file}: no such file; --study is the JSON written after the evaluations")
    try:
        study = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise UserMistake(f"{file}, line {error.lineno}: not JSON ({error.msg})") from error
    if not study.get("cells"):
        raise UserMistake(f"{file}: no cells; there is nothing to report")
    return study


def answer_of(found: Results, differences: list[Difference]) -> str:
    """One sentence, computed: what is better than what, by how much, where, and where nothing was found."""
    if not differences:
        return _reached(found)
    shown, others = ([d for d in differences if bool(d.comparison.evidence) is evidence] for evidence in (True, False))
    told = _told(shown, in_full=True)
    if len(differences) <= MANY:
        told += _told(others, in_full=len(differences) <= FEW)
    elif others:
        which = f"the other {len(others)}" if shown else f"any of {len(others)}"
        told.append(f"there is no evidence of a difference in {which} comparison{'s' * (len(others) > 1)}")
    sentence = "; ".join(told) + "."
    return sentence[0].upper() + sentence[1:]


def _reached(found: Results) -> str:
    parts = []
    for task in found.tasks:
        metric = found.main_metric(task)
        value = found.pooled(found.arms[0], task)[metric]["value"]
        parts.append(f"{number(metric, value)} {title_of(metric)} on {task}")
    return f"{found.arms[0]} reaches {', '.join(parts)}; there is no second arm to compare it with."


def _told(differences: list[Difference], in_full: bool) -> list[str]:
    """A clause for each finding, with its tasks, and its effects if they are wanted."""
    clauses: dict[str, list[str]] = {}
    for difference in differences:
        c = difference.as_said
        effect = f" ({title_of(c.metric)} {change(c.metric, c.difference)}, 95% interval {difference_range(c)})"
        words = difference.words if c.evidence else f"there is {difference.words}"
        clauses.setdefault(words, []).append(f"{difference.task}{effect if in_full else ''}")
    return [f"{words} on {', '.join(tasks)}" for words, tasks in clauses.items()]


def _blocks(
    study: Mapping[str, Any], base: Path, found: Results, differences: list[Difference], answer: str
) -> list[Block]:
    question = study.get("question") or _question(found)
    blocks: list[Block] = [Heading("Question"), Paragraph(question), Heading("Answer"), Paragraph(answer, "answer")]
    blocks += _warnings(study, found)
    blocks += [Heading("Results"), *result_tables(found)]
    if differences:
        blocks += [Heading("Differences"), *_difference_blocks(differences)]
    blocks += crossing_blocks(study, differences)
    blocks += cost_blocks(study, found)
    blocks += curves(study, base)
    blocks += _data_blocks(study, found.tasks)
    blocks += setting_blocks(study, found)
    blocks += [Heading("Each run"), *learning_curves(found), *details(found)]
    blocks += _again(study)
    return blocks


def _question(found: Results) -> str:
    if len(found.arms) < 2:
        return f"How well does {found.arms[0]} do on {', '.join(found.tasks)}?"
    return f"Is {found.arms[0]} better than {', '.join(found.arms[1:])} on {', '.join(found.tasks)}, and by how much?"


def _warnings(study: Mapping[str, Any], found: Results) -> list[Block]:
    blocks = leaks.warnings(study, found.tasks)
    if any(len(found.of(arm, task)) < 2 for arm in found.arms for task in found.tasks):
        text = "Some arms have one seed: their intervals count the test examples only, not how much seeds vary."
        blocks.append(Paragraph(text))
    return blocks


def _difference_blocks(differences: list[Difference]) -> list[Block]:
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
            title_of(d.comparison.metric),
            change(d.comparison.metric, d.comparison.difference),
            difference_range(d.comparison),
            probability(d.comparison.p),
            probability(d.comparison.p_holm),
            probability(d.comparison.p_randomization),
            d.finding,
        )
        for d in differences
    ]
    how = (
        "Arms are compared on the same test examples, seed by seed. The interval and p count both the examples (paired "
        "bootstrap) and the seeds (two-way random effects, t with Satterthwaite's degrees of freedom). p "
        "(randomization) swaps the two arms' answers to randomly chosen examples, in all seeds together, and takes the "
        "seeds as they are; with one seed it is p (of accuracies: McNemar's exact test, by sampling). p (Holm) is p "
        "corrected for all tasks and pairs of this table (Holm's step-down method); a difference is called one where p "
        "(Holm) is below 0.05."
    )
    return [*difference_chart(differences), Table(header, rows), Paragraph(how)]


def probability(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _data_blocks(study: Mapping[str, Any], tasks: Sequence[str]) -> list[Block]:
    blocks: list[Block] = []
    dump = study.get("dump") or {}
    if dump:
        about = [(name, _text(value)) for name, value in dump.items()]
        blocks += [Heading("The dump"), Table(("what", "value"), about)]
    stages = study.get("stages") or []
    if stages:
        rows = [
            (s["stage"], _counts(s.get("counts")), f"{s.get('seconds') or 0:.1f}", f"{s.get('cpu_seconds') or 0:.1f}")
            for s in stages
        ]
        blocks += [Heading("Counts of each stage"), Table(("stage", "counts", "seconds", "CPU seconds"), rows)]
    blocks += leaks.statement(study, tasks)
    lineage = [("dump", dump["fingerprint"])] if dump.get("fingerprint") else []
    lineage += [
        (s["stage"], s.get("fingerprint") or "") for s in stages if s.get("fingerprint") != dump.get("fingerprint")
    ]
    lineage += [
        (f"encoder of {arm['name']}", arm["fingerprint"]) for arm in study.get("arms", []) if "fingerprint" in arm
    ]
    if lineage:
        after = "Each fine-tuning's own is in the table of runs below."
        blocks += [Heading("Lineage"), Table(("stage", "fingerprint"), lineage), Paragraph(after)]
    return blocks


def _again(study: Mapping[str, Any]) -> list[Block]:
    commands = study.get("commands") or ([study["command"]] if study.get("command") else [])
    lines = [c if isinstance(c, str) else shlex.join(c) for c in commands]
    return [Heading("To make it again"), Code("\n".join(lines))] if lines else []


def _counts(counts: Mapping[str, Any] | None) -> str:
    """Numbers only: a stage's result also names folders and fingerprints."""
    numbers = {name: value for name, value in (counts or {}).items() if _is_count(name, value)}
    return ", ".join(f"{name} {_text(value)}" for name, value in numbers.items())


def _is_count(name: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(_is_count(key, inner) for key, inner in value.items())
    return isinstance(value, int | float) and not isinstance(value, bool) and not name.endswith("seconds")


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, Mapping):
        return f"({_counts(value)})" if value else "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)


def _summary(
    study: Mapping[str, Any], found: Results, differences: list[Difference], answer: str, output: Path
) -> dict[str, Any]:
    """report.json: what a dashboard or a later comparison needs."""
    return {
        "title": study.get("title") or "Report",
        "answer": answer,
        "results": [
            {"arm": arm, "task": task, "seeds": [c.seed for c in found.of(arm, task)], "metrics": values}
            for task in found.tasks
            for arm in found.arms
            if (values := found.pooled(arm, task))
        ],
        "differences": [
            {"a": d.a, "b": d.b, "task": d.task, "evidence": d.comparison.evidence, "words": d.words}
            | asdict(d.comparison)
            for d in differences
        ],
        "report": str(output / "report.html"),
        "markdown": str(output / "report.md"),
        "model": str(output / "model") if study.get("model") else None,
        "table": [
            {"arm": arm, "task": task, "value": percent(found, arm, task)} for task in found.tasks for arm in found.arms
        ],
    }


if __name__ == "__main__":
    main(run)
