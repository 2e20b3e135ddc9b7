"""Whether the tasks of a run can have examples: decided by the first records of the dump, and by
the corpus's counts, before anything is trained.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, name_setting
from amazon_electra.beam_jobs.corpus.classes import MIN_LABELLED
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.fields import MAX_CLASSES
from amazon_electra.beam_jobs.reading.label_values import (
    decide_values,
    describe_contradictions,
    describe_values,
)
from amazon_electra.beam_jobs.reading.stars import BINARY, decide_scales
from amazon_electra.flows.configuration.form import Corpus, Dump, Parameters
from amazon_electra.flows.dumps.expected_corpus import check_split, foretell_corpus
from amazon_electra.flows.dumps.preview import (
    Preview,
    count_classes,
    count_ratings,
    list_contradictory_texts,
    list_files,
    read_previews,
)
from amazon_electra.flows.runner.stage_runner import StageMaker
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.finetuning.examples import SPLITS, Split
from amazon_electra.model.finetuning.tasks import has_dev, list_star_tasks
from amazon_electra.model.finetuning.tasks.corpus import CORPUS_SPLITS, LABEL, SPLITS_WITHOUT_DEV

CLASS_NAMES = ("sentiment", "label", "polarity", "class", "category", "liked", "target", "votedup")
"""What names of columns with classes end with, in files without stars."""
USES: dict[Split, str] = {"train": "train on", "dev": "choose by (dev)", "test": "test on"}
MAX_GUESSED = 20
"""Values of a column that is taken for one of classes whatever it is called."""
SHOWN_VALUES, SHOWN_COUNTS = 3, 30


def resolve_tasks(p: Parameters, dump: Stage, make: StageMaker) -> Parameters:
    """Return the parameters of a run with its tasks: those of the form, or else what the dump's
    first records have, the user's own labels first. UserError where one can have no example.
    """
    tasks = list(p.finetuning.tasks)
    if tasks:
        check_dump(tasks, p.dump, dump, make, p.corpus)
    else:
        previews = _read_previews(p.dump, dump, make)
        own = [f"{LABEL}{column}" for column in p.dump.labels]
        tasks = [*own, *_list_star_tasks(p.dump, previews)] or list(list_star_tasks())
        _check_previews(tasks, p.dump, previews, p.corpus)
    return p.model_copy(update={"finetuning": p.finetuning.model_copy(update={"tasks": tasks})})


def check_dump(
    tasks: Sequence[str],
    chosen: Dump,
    dump: Stage,
    make: StageMaker,
    corpus: Corpus = Corpus(),  # noqa: B008
) -> None:
    """Raise UserError where the dump's first records show that a task can have no example, or that
    there can be no such corpus.
    """
    own = [task.removeprefix(LABEL) for task in tasks if task.startswith(LABEL)]
    if missing := [column for column in own if column not in chosen.labels]:
        raise UserError(
            f"task {LABEL}{missing[0]}: {missing[0]} is not among the labels of the dump; add "
            f"{name_setting('dump.labels', missing[0])}"
        )
    if own or any(task in list_star_tasks() for task in tasks) or corpus.split_by != "text":
        _check_previews(tasks, chosen, _read_previews(chosen, dump, make), corpus)


def _read_previews(chosen: Dump, dump: Stage, make: StageMaker) -> list[Preview]:
    """Return the first records of each file; a store of objects that is away is asked again."""

    def read() -> list[Preview]:
        return read_previews(list_files(chosen, dump), chosen)

    is_far = any(storage.is_remote(path) for path in chosen.paths)
    return make.call("labels", read) if is_far else read()


def _list_star_tasks(chosen: Dump, previews: Sequence[Preview]) -> list[str]:
    """Return which of polarity and stars a file of the dump may have an example for."""
    tasks = list_star_tasks()
    found = {task for each in previews for task in tasks if not find_mistake([task], each)}
    try:
        scale = decide_scales(count_ratings(previews), "the dump", chosen.stars_scale).name
    except UserError:  # reported when the tasks are checked
        scale = ""
    return sorted(found - ({"stars"} if scale == BINARY else set()))


def _check_previews(
    tasks: Sequence[str], chosen: Dump, previews: Sequence[Preview], corpus: Corpus
) -> None:
    """Raise UserError where the first records show that one of the tasks can have no example, or
    that the split has nothing to go by.
    """
    asked = tasks
    check_split(previews, corpus)
    for task in tasks:
        if task.startswith(LABEL):
            _check_label(task.removeprefix(LABEL), previews, chosen.fold_labels)
    tasks = [task for task in dict.fromkeys(tasks) if task in list_star_tasks()]
    if tasks:
        _check_scale(tasks, previews, chosen.stars_scale)
    found = {preview.file.name: find_mistake(tasks, preview) for preview in previews if tasks}
    if found and all(found.values()):
        name, mistake = next(iter(found.items()))
        others = f" (and {len(found) - 1} more files like it)" if len(found) > 1 else ""
        raise UserError(f"{name}: {mistake}{others}")
    expected = foretell_corpus(previews, chosen, corpus)
    for task in asked if expected else ():
        if mistake := find_missing(task, expected):
            raise UserError(f"{previews[0].file.name}: {mistake}")


def _check_scale(tasks: Sequence[str], previews: Sequence[Preview], given: str | None) -> None:
    """Raise UserError where the scale of the stars is open, if there are no more, or gives no
    stars for the task stars.
    """
    counts, scale = count_ratings(previews), None
    try:
        scale = decide_scales(counts, previews[0].file.name, given)
    except UserError:
        if all(preview.is_whole for preview in previews):
            raise
    if scale and scale.name == BINARY and "stars" in tasks and any(counts.values()):
        raise UserError(
            f"{previews[0].file.name}: its stars are only no and yes, so the task stars has no "
            "examples: leave it out with `finetuning.tasks='polarity'`"
        )


def _check_label(column: str, previews: Sequence[Preview], folds: bool) -> None:
    """Raise UserError where a column holds no classes, as far as its first values show."""
    typed = sum((preview.count_values(column) for preview in previews), Counter[str]())
    counts = count_classes(typed, folds)
    is_whole = all(preview.is_whole for preview in previews)
    name = previews[0].file.name
    if len(counts) > MAX_CLASSES and 2 * len(counts) > counts.total():
        raise UserError(
            f"{len(counts):,} different values in the first "
            f"{counts.total():,} of {name}; name a column of classes, of which there are 2 to "
            f"{MAX_CLASSES}",
            "dump.labels",
            column,
        )
    several, counts = list_contradictory_texts(previews, column, folds)
    if is_whole and len(counts) < 2:
        shown = f"only {next(iter(counts))!r}" if counts else "no value"
        records = sum(len(preview.records) for preview in previews)
        raw = (record.get(column) for preview in previews for record in preview.records)
        odd = next((value for value in raw if value not in (None, "", [])), None)
        if odd is not None and not counts:
            shown = f"values such as {str(odd)[:40]}, which are neither classes nor lists of them"
        line = describe_contradictions(several) or describe_values(
            typed, decide_values(typed, folds), records
        )
        raise UserError(
            f"{name} has {shown}; a task needs two classes" + (f" ({line})" if line else ""),
            "dump.labels",
            column,
        )


def find_mistake(tasks: Sequence[str], preview: Preview) -> str:
    """Return why a file has no example for one of the tasks, or nothing."""
    layout = preview.file.layout
    if layout.name == "fasttext" and layout.labels == "polarity" and "stars" in tasks:
        return (
            "its labels stand for 1–2 or 4–5 stars, so the task stars has no examples: leave it "
            "out with `finetuning.tasks='polarity'`"
        )
    if layout.name == "fasttext" and layout.labels == "unknown":
        return (
            f"its labels are not stars, so there are no examples for {' and '.join(tasks)}: read "
            "them as classes with `dump.labels='label'`"
        )
    if not preview.reviews or any(review.rating for review in preview.reviews):
        return ""
    names = " and ".join(tasks)
    column, label = dict(layout.mapping).get("stars"), guess_label(preview)
    if column and 2 <= len(preview.count_labels(column)) <= MAX_CLASSES:
        label = column  # words or letters, which are classes
    hint = fields.HINT.replace("`labels='NAME'`", name_setting("labels", label))
    if column is None:
        there = ", ".join(preview.columns)
        return f"no stars, so there are no examples for {names}: its columns are {there}; {hint}"
    values = dict.fromkeys(
        repr(record[column])[:40] for record in preview.records if record.get(column)
    )
    if not values:
        return ""  # they may come later; the corpus counts them
    shown = ", ".join(list(values)[:SHOWN_VALUES])
    return (
        f"no stars, so there are no examples for {names}: the values of its column {column} are "
        f"not stars, but {shown}; its columns are {', '.join(preview.columns)}; {hint}"
    )


def guess_label(preview: Preview) -> str:
    """Return the column that seems to have the classes of a file without stars: by its name, or
    else by its values, of which there are few; or NAME.
    """
    unused, likely = dict(preview.file.layout.unused), list[str]()
    for name in unused:
        is_named = fields.strip_column_name(name).endswith(CLASS_NAMES)
        is_read = any(name in record for record in preview.records)  # of Parquet none is
        counts = preview.count_labels(name)
        if is_named and (not is_read or 2 <= len(counts) <= MAX_CLASSES):
            return name
        few = counts.total() // MIN_LABELLED
        if 2 <= len(counts) <= min(MAX_GUESSED, few) and not all(map(is_amount, counts)):
            likely.append(name)
    return likely[0] if len(likely) == 1 else "NAME"


def is_amount(value: str) -> bool:
    """Return whether a class is a number."""
    return value.replace(".", "", 1).replace(",", "", 1).lstrip("+-").isdecimal()


def check_corpus(tasks: Sequence[str], corpus: Stage, store: Store) -> None:
    """Raise UserError where the corpus, if it is made, has no example for a task in a split."""
    made = store.manifest(corpus)
    if not made:
        return
    for task in tasks:
        if mistake := find_missing(task, made["result"]):
            raise UserError(mistake)


def find_missing(task: str, result: Mapping[str, Any]) -> str:
    """Return what a corpus with this result lacks of a task, or nothing."""
    if task.startswith(LABEL):
        column = task.removeprefix(LABEL)
        found = result.get("labels", {}).get(column)
        if not found:
            named = name_setting("dump.labels", column)
            return f"the corpus has no label {column}: make it with {named}"
        if not found["classes"]:
            return next(w for w in result["warnings"] if w.startswith(f"label {column}: "))
        counts, classes = found["counts"], {name: name for name in found["classes"]}
        shown, hint = "classes", ""
    elif task == "stars" and result.get("stars_scale") == BINARY:
        return "the stars of the corpus are only no and yes: leave the task stars out"
    elif task in list_star_tasks() and "stars" in result:
        of_task = list_star_tasks()[task].stars
        counts, classes = result["stars"], {str(n): str(c) for n, c in of_task.items()}
        shown, hint = "stars", f", or {fields.HINT}"
    else:
        return ""
    splits = CORPUS_SPLITS if has_dev([task], result) else SPLITS_WITHOUT_DEV
    for split in (split for split in SPLITS if splits[split]):
        there = {
            label
            for value, label in classes.items()
            if any(counts.get(f"{side}.{value}") for side in splits[split])
        }
        if not there or (split == "train" and len(there) < 2):
            return (
                f"the corpus has {'examples of one class' if there else 'no example'} for "
                f"{task} to {USES[split]}; its reviews by split and {shown}: "
                f"{format_counts(counts)}; take a larger dump, or larger shares "
                f"(`corpus.split`){hint}"
            )
    return ""


def format_counts(counts: Mapping[str, int]) -> str:
    """Return the most frequent counts by name."""
    most = sorted(counts.items(), key=lambda item: -item[1])[:SHOWN_COUNTS]
    more = f" and {len(counts) - SHOWN_COUNTS} more" if len(counts) > SHOWN_COUNTS else ""
    return ", ".join(f"{name} {n:,}" for name, n in sorted(most)) + more
