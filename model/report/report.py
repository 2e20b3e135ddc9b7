"""The report of a study: `python -m amazon_electra.model.report.report --study FILE --output DIR`.

FILE is study.json, which a run writes after its evaluations (inputs.py). Everything printed is
computed from the cells' predictions. Writes report.md, report.html (self-contained) and
report.json.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.command import main
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.settings import read_options
from amazon_electra.model.arms import TFIDF_ARM
from amazon_electra.model.encoders.known import warn_of_languages
from amazon_electra.model.options import ReportOptions
from amazon_electra.model.report.decision import describe_decision
from amazon_electra.model.report.document import (
    Block,
    Code,
    Document,
    Heading,
    Paragraph,
    Table,
    join_names,
)
from amazon_electra.model.report.inputs import ArmFacts, ReportInput, read_report_input
from amazon_electra.model.report.owner import (
    build_owner_blocks,
    name_errors_page,
    name_weak_slices,
    warn_of_giveaway,
    write_errors_page,
)
from amazon_electra.model.report.results import MARK, Difference, Results, load_curve, load_results
from amazon_electra.model.report.sections import (
    build_class_table,
    build_cost_blocks,
    build_curve_blocks,
    build_difference_blocks,
    build_label_curve,
    build_mistake_blocks,
    build_result_table,
    describe_only_answer,
    format_change,
    format_number,
    format_range,
    format_with_interval,
    get_title,
)

OF_SAMPLE = (
    "The dump is the synthetic sample, which shows that the path works: its results say nothing of "
    "real reviews."
)
OF_SINGLE_SEEDS = (
    "Some arms have one seed: their intervals count the test examples only, not how much seeds "
    "vary."
)
FEW = 4
"""Comparisons up to which the answer has every effect; of more, only those that differ."""
SHOWN_LANGUAGES = 5
MANY = 10
"""Comparisons above which those without evidence are counted and not named."""
COMMON_TEXTS = 100
"""Of beam_jobs/deduplication/held_out.py, which this package cannot import."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = read_options(
        ReportOptions, argv, "python -m amazon_electra.model.report.report", __doc__
    )
    return write_report(arguments.study, arguments.output)


def write_report(study: ReportInput | str | Path, output: str | Path) -> dict[str, Any]:
    """Write report.md, report.html and report.json; return the last one's content.

    `study` is what the report shows, or a file of it, to which its folders are relative.
    """
    output, base = Path(output), Path()
    if not isinstance(study, ReportInput):
        base = Path(study).parent
        study = read_report_input(Path(study))
    results = load_results(study, base)
    differences = results.compare_pairs(study.comparisons)
    answer = compose_answer(results, differences)
    output.mkdir(parents=True, exist_ok=True)
    document = Document(study.title, _build_blocks(study, base, results, differences, answer))
    (output / "report.md").write_text(document.render_markdown(), encoding="utf-8")
    (output / "report.html").write_text(document.render_html(), encoding="utf-8")
    for place, model in enumerate(study.models):
        write_errors_page(base / model, output / name_errors_page(place), study.title)
    summary = _build_summary(study, results, differences, answer, output)
    write_json(output / "report.json", summary)
    return summary


def describe_best_arms(results: Results) -> list[str]:
    """Return a sentence for each task of classes: which arm was chosen, what it reaches on
    test, and what TF-IDF and the most frequent class reach there.
    """
    sentences = []
    for task in results.tasks:
        best, majority = results.find_best_arm(task), results.measure_majority(task)
        if not best or majority is None:
            continue
        reached = {
            arm: ", ".join(
                f"{get_title(metric)} {format_with_interval(metric, values)}"
                for metric, values in results.pool_metrics(arm, task).items()
                if metric in ("accuracy", "macro_f1")
            )
            for arm in (best, TFIDF_ARM)
            if results.list_cells(arm, task)
        }
        won = "TF-IDF with logistic regression" if best == TFIDF_ARM else best
        others = (
            []
            if best == TFIDF_ARM or TFIDF_ARM not in reached
            else [f"TF-IDF: {reached[TFIDF_ARM]}"]
        )
        others.append(f"the most frequent class: {format_number('accuracy', majority)}")
        sentences.append(
            f"{task}: {won} is best on held-out labels; on test {reached[best]} "
            f"({'; '.join(others)})."
        )
        if best in results.untrained and best != TFIDF_ARM:
            other = results.find_best_arm(task, without=best) or "none"
            sentences[-1] += (
                f" The encoder of {best} was not pre-trained, so it is no model to keep: the "
                f"best of the others is {other}."
            )
    return sentences


def compose_answer(results: Results, differences: Sequence[Difference]) -> str:
    """Compose the answer: which arm is better, by how much, on which tasks."""
    if not differences:
        parts = []
        for task in results.tasks:
            metric = results.get_main_metric(task)
            value = results.pool_metrics(results.arms[0], task)[metric]["value"]
            parts.append(f"{format_number(metric, value)} {get_title(metric)} on {task}")
        reached = f"{results.arms[0]} reaches {', '.join(parts)}"
        return f"{reached}; there is no second arm to compare it with."
    shown = [d for d in differences if d.comparison.is_significant]
    others = [d for d in differences if not d.comparison.is_significant]
    clauses = _compose_clauses(shown, in_full=True)
    if len(differences) <= MANY:
        clauses += _compose_clauses(others, in_full=len(differences) <= FEW)
    elif others:
        which = f"the other {len(others)}" if shown else f"any of {len(others)}"
        clauses.append(
            f"there is no evidence of a difference in {which} comparison{'s' * (len(others) > 1)}"
        )
    sentence = "; ".join(clauses) + "."
    return sentence[0].upper() + sentence[1:]


def describe_adaptation(study: ReportInput, differences: Sequence[Difference]) -> list[Block]:
    """Say what each arm gains where its encoder is the adapted one instead of the published one."""
    lines = [
        f"{d.task}: {d.a} less {d.b}: {format_change(c.metric, c.difference)} of "
        f"{get_title(c.metric)}{d.scope}, 95% interval {format_range(c)}."
        for d in differences
        for c in [d.comparison]
        if (d.a, d.b) in study.adaptation
    ]
    return [Heading("What adaptation was worth"), *map(Paragraph, lines)] if lines else []


def _compose_clauses(differences: Sequence[Difference], in_full: bool) -> list[str]:
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
    study: ReportInput,
    base: Path,
    results: Results,
    differences: Sequence[Difference],
    answer: str,
) -> list[Block]:
    question = f"How well does {results.arms[0]} do on {join_names(results.tasks)}?"
    if others := results.arms[1:]:
        question = (
            f"Is {results.arms[0]} better than {join_names(others)} on "
            f"{join_names(results.tasks)}, and by how much?"
        )
    has_single_seeds = any(
        len(results.list_cells(arm, task)) < 2 for arm in results.arms for task in results.tasks
    )
    command: list[Block] = [Heading("To make it again"), Code(study.command)]
    models = [base / one for one in study.models]
    return [
        *([Paragraph(OF_SAMPLE, "warning")] if study.synthetic else []),
        *(block for model in models for block in warn_of_giveaway(model)),
        *(
            Paragraph(text, "answer")
            for text in describe_decision(results, study.cells, models[0] if models else None)
        ),
        *(Paragraph(text, "answer") for text in describe_best_arms(results)),
        *(block for model in models for block in name_weak_slices(model)),
        Heading("Question"),
        Paragraph(study.question or question),
        Heading("Answer"),
        Paragraph(answer, "answer"),
        *(Paragraph(text, "warning") for text in _list_warnings(study, results)),
        *([Paragraph(OF_SINGLE_SEEDS)] if has_single_seeds else []),
        *describe_adaptation(study, differences),
        Heading("Results"),
        build_result_table(results),
        *build_class_table(results),
        *describe_labels(study, results),
        *build_label_curve(results, load_curve(study, base)),
        *build_owner_blocks(models),
        *build_difference_blocks(differences, results),
        *build_cost_blocks(study, results),
        *build_curve_blocks(study, base, results),
        *_build_data_blocks(study, results.tasks),
        *build_mistake_blocks(results),
        *(command if study.command else []),
    ]


def _list_warnings(study: ReportInput, results: Results) -> list[str]:
    """Return what may mislead a reader: possible leaks, arms that training left as they were, arms
    and tasks that were left out, arms that answer one class only.
    """
    warnings = [
        *list_leak_warnings(study, results.tasks),
        *list_exposures(results),
        *(text for arm in study.arms if (text := describe_unchanged_arm(arm))),
        *(
            f"{warning}."
            for facts in study.stages
            for origin in study.origins.values()
            if (warning := warn_of_languages(origin, facts.counts.get("language_sample", {})))
        ),
    ]
    pairs = itertools.product(results.arms, results.tasks)
    for name, why in study.left_out.items():
        part = name if name.startswith("task ") else f"arm {name}"
        warnings.append(f"The {part} was left out: {why}.")
    if any(len({c.seed for c in results.list_cells(a, t)}) == 2 for a, t in pairs):
        warnings.append(TWO_SEEDS)
    only = [describe_only_answer(results, arm, t) for t in results.tasks for arm in results.arms]
    return warnings + [text for text in only if text]


def describe_unchanged_arm(arm: ArmFacts) -> str:
    """Say that the pre-trainings of an arm, or some of them, wrote the encoder they began with;
    empty where none did.
    """
    unchanged, trained = arm.written_steps.count(0), len(arm.written_steps)
    if not unchanged:
        return ""
    where = f" in {unchanged} of its {trained} pre-trainings" if trained > 1 else ""
    return (
        f"{arm.name} is the encoder it began with, unchanged{where}: the probe found the trained "
        "weights worse, so the original ones were kept. Results of such an encoder say nothing "
        "about the training."
    )


TWO_SEEDS = (
    "Two seeds hardly show how much seeds vary: an interval over them is several times as wide as "
    "with five. Take five (finetuning.seeds), or one."
)
MAX_NAMES = 6
"""Of data sets in a sentence; the origin's origin.json names all."""


def list_leak_warnings(study: ReportInput, tasks: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each encoder that may have seen the test texts of a task."""
    for fingerprint, origin in study.origins.items():
        arms = [arm.name for arm in study.arms if arm.origin == fingerprint]
        data = origin.get("training_data") or "unknown"
        names = data.split(", ")
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        shown = f"are, by what comes with it, “{', '.join(names[:MAX_NAMES])}”{more}"
        yield (
            f"The texts that {origin['name']} was trained on "
            f"{'are unknown' if data == 'unknown' else shown}. They may include test texts, "
            f"so the results of {join_names(arms)} may be too good; their differences from each "
            "other are affected less."
        )
    for arm in study.arms:
        if arm.data_known is False:
            if not arm.origin:
                yield (
                    f"Nothing is known of the texts that the encoder of {arm.name} was trained on. "
                    "They may include test texts, so its results may be too good."
                )
            continue
        seen = [task for task in tasks if task not in (arm.held_out or [])]
        if arm.held_out is None or not seen:
            continue
        yield (
            f"Nothing shows that the test texts of {join_names(seen)} were withheld from the "
            f"pre-training of {arm.name}; its results there may be too good."
        )


def describe_labels(study: ReportInput, results: Results) -> list[Block]:
    """Say which labels were read, and by which arms."""
    text = "Labels are those of train and those of dev, from which an arm chooses its state."
    if any(
        c.result.get("settings", {}).get("selection") == "cross-validation" for c in results.cells
    ):
        text = (
            "There is no dev split: settings, arm, temperature and class weights were chosen by "
            "the log-loss of training examples, each predicted by a model that had not read it; "
            "nothing was chosen on test. A second number of labels counts those held out."
        )
    if probed := [arm.name for arm in study.arms if arm.written_steps]:
        text += (
            f" By a probe of {join_names(probed)} on labels of train and dev, which all arms read, "
            "it was judged whether the trained weights are kept."
        )
    return [Paragraph(text)]


def list_exposures(results: Results) -> Iterator[str]:
    """Yield a sentence for the tasks whose source a published encoder was trained on."""
    exposed = [(task, results.find_exposure(task)) for task in results.tasks]
    if named := [f"{task}{part}" for task, part in exposed if part is not None]:
        yield (
            f"A published encoder of this study was trained on texts of the source of "
            f"{join_names(named)}: what arms with it reach there, marked{MARK}, says little of new "
            "texts."
        )


def describe_withheld_texts(study: ReportInput, tasks: Sequence[str]) -> list[Block]:
    """Name the tasks whose test texts were withheld from every pre-training of this study.

    beam_jobs/deduplication/evaluation_texts.py withholds no text of fewer than three words, and
    looks within longer texts only for those of eight words or more.
    """
    pretrained = {arm.name: arm.held_out for arm in study.arms if arm.held_out is not None}
    if not pretrained:
        return []
    shown = [task for task in tasks if all(task in tasks_of for tasks_of in pretrained.values())]
    arms = join_names(list(pretrained))
    text = (
        f"For no task is it shown that its test texts were withheld from every pre-training of "
        f"{arms}."
    )
    if shown:
        # by reason, of the corpus stage: its own dev and test sets, and texts of other ones
        counted = next((s.counts for s in study.stages if s.counts.get("splits")), {})
        splits, dropped = counted.get("splits") or {}, counted.get("dropped") or {}
        counts = {f"own {name}": int(splits.get(name, 0)) for name in ("dev", "test") if splits}
        counts |= {n: int(k) for n, k in dropped.items() if n.startswith("withheld")}
        reasons = ", ".join(f"{name} {n:,}" for name, n in counts.items())
        withheld = f" {sum(counts.values()):,} texts were withheld ({reasons})." if counts else ""
        text = (
            f"No test text of {join_names(shown)} with three words or more is in the pre-training "
            f"of {arms}, neither as a whole text nor as part of one.{withheld} A phrase of eight "
            f"words that more than {COMMON_TEXTS} dev and test texts share, or 1 in 500 reviews "
            f"and at least 20, does not count; of other test sets {COMMON_TEXTS} are compared."
        )
    return [Heading("Withheld from pre-training"), Paragraph(text)]


def _build_data_blocks(study: ReportInput, tasks: Sequence[str]) -> list[Block]:
    """Return the dump, what became of its reviews, and the statement on leaks."""
    blocks: list[Block] = []
    if study.dump:
        about = [(name, _format_detail(value)) for name, value in study.dump.items()]
        blocks += [Heading("The dump"), Table(("what", "value"), about)]
    for describe in (describe_drops, describe_columns, describe_split, describe_languages):
        blocks += [Paragraph(text) for s in study.stages if (text := describe(s.counts))]
    return blocks + describe_withheld_texts(study, tasks)


def describe_languages(counts: Mapping[str, Any]) -> str:
    """Return the languages of a corpus's sample, the most frequent ones first."""
    sample: Mapping[str, int] = counts.get("language_sample", {})
    total = sum(sample.values())
    shown = [f"{name} {n / total:.0%}" for name, n in list(sample.items())[:SHOWN_LANGUAGES]]
    return f"Languages, by {total:,} reviews: {', '.join(shown)}." if shown else ""


def describe_split(counts: Mapping[str, Any]) -> str:
    """Return what a corpus's split is by, and how many test reviews are of a product that is on the
    training side too.
    """
    split = counts.get("split_by")
    if not split:
        return ""
    way = {
        "text": "by a hash of its text, so equal texts are on one side",
        "product": "by its product, so no product is on two sides",
        "user": "by its user, so nobody is on two sides",
        "time": "by its date: the latest reviews are test, those before them dev",
    }[split["by"]]
    text = f"A review's side of the split is decided {way}."
    if split["without"]:
        by = split["by"]
        where = "and are in none of dev and test" if by == "time" else "so their text decides"
        kind = "date" if by == "time" else by
        text += f" {split['without']:,} reviews have no {kind}, {where}."
    if not (tests := split["test_with_product"]):
        return f"{text} No test review names its product."
    shared = split["test_with_product_in_training"]
    about = "about " if "products" in split else ""  # estimated by a share of the products
    return (
        f"{text} Of the {about}{tests:,} test reviews that name their product, {shared:,} "
        f"({shared / tests:.1%}) are of one that pretrain or train has too."
    )


def describe_columns(counts: Mapping[str, Any]) -> str:
    """Return which columns of the dump gave which field, and which were not used, each with the
    field whose names are closest.
    """
    columns = counts.get("columns") or {}
    if not columns:
        return ""
    used = [f"{field} ← {', '.join(names)}" for field, names in columns["used"].items()]
    unused = [n + (f" ({field}?)" if field else "") for n, field in columns["unused"].items()]
    return f"Columns of the dump: {', '.join(used)}; not used: {', '.join(unused) or 'none'}."


def describe_drops(counts: Mapping[str, Any]) -> str:
    """Return how many reviews a corpus has read and kept, and why others were dropped."""
    if "dropped" not in counts:
        return ""
    read, kept = counts["read"], counts["kept"]
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in counts["dropped"].items()) or "none"
    return f"Reviews read: {read:,}, kept: {kept:,}; dropped, by reason: {reasons}."


def _format_detail(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_detail, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _build_summary(
    study: ReportInput,
    results: Results,
    differences: Sequence[Difference],
    answer: str,
    output: Path,
) -> dict[str, Any]:
    """Return report.json: what a dashboard or a later comparison needs."""
    return {
        "title": study.title,
        "answer": answer,
        "best": {task: results.find_best_arm(task) for task in results.tasks},
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
    }


if __name__ == "__main__":
    main(run, ReportOptions)
