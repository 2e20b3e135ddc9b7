"""The tasks of a dump and its counts, by its first records and by its corpus."""

import fnmatch
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError, show_option
from amazon_electra.beam_jobs.labels.classes import (
    choose_classes,
    count_labels,
    warn_of_label,
)
from amazon_electra.beam_jobs.labels.stars import BINARY, Scale, decide_scales
from amazon_electra.beam_jobs.labels.values import decide_values
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.formats import find_format
from amazon_electra.beam_jobs.text.splits import read_shares
from amazon_electra.flows import policy
from amazon_electra.flows.configuration.form import Corpus, Dump
from amazon_electra.flows.dumps.preview import Preview, count_ratings
from amazon_electra.flows.policy import Counts
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.finetuning.examples import SPLITS, Split
from amazon_electra.model.finetuning.tasks import count_labelled, has_dev, list_star_tasks
from amazon_electra.model.finetuning.tasks.corpus import CORPUS_SPLITS, LABEL, SPLITS_WITHOUT_DEV
from amazon_electra.model.pretraining.input.pairs import WORD, count_pairs, find_reason

USES: dict[Split, str] = {"train": "train on", "dev": "choose by (dev)", "test": "test on"}
TOKENS_PER_SENTENCE, TOKENS_PER_WORD = 17, 1.3
"""Of reviews, on average over the 79,278 real ones of docs/results.md."""


def choose_tasks(
    asked: Sequence[str], chosen: Dump, previews: Sequence[Preview], may_lack: bool = False
) -> list[str]:
    """Return the tasks of a run: those asked for, or else all that the first records have labels
    for, the user's own first. UserError where there is none and it may not lack them, or a label is
    not read.
    """
    check_labels(asked, chosen)
    own = [f"{LABEL}{column}" for column in chosen.labels]
    if tasks := list(asked) or [*own, *_list_star_tasks(chosen, previews)]:
        return tasks
    if may_lack:
        return []
    first = previews[0]
    columns = [*first.mapping.values(), *(name or '""' for name in first.file.layout.unused)]
    why = f"no stars, so there are no examples; its columns are {', '.join(columns)}"
    raise UserError(f"{first.file.name}: {why}; {fields.HINT}")


def check_labels(tasks: Sequence[str], chosen: Dump) -> None:
    """Raise UserError where a task is of a column that is not read as a label."""
    for column in (task.removeprefix(LABEL) for task in tasks if task.startswith(LABEL)):
        if column not in chosen.labels:
            why = f"not among the labels of the dump; add {show_option('--label', column)}"
            raise UserError(f"task {LABEL}{column}: {why}")


def _decide_scale(chosen: Dump, previews: Sequence[Preview]) -> Scale | None:
    """Return the scale of the stars; None where the first records leave it open."""
    with suppress(UserError):
        return decide_scales(count_ratings(previews), "the dump", chosen.stars_scale)
    return None


def _list_star_tasks(chosen: Dump, previews: Sequence[Preview]) -> list[str]:
    """Return which of polarity and stars a file of the dump may have an example for."""
    rated, kinds = [], set()
    for preview in previews:
        kind = find_format(preview.file.layout.name).find_stars(preview.file.layout)
        column = preview.mapping.get("stars", "")
        is_empty = not any(record.get(column) for record in preview.records)
        has_stars = any(review.rating for review in preview.reviews) or (column and is_empty)
        if has_stars and kind != "none":
            rated.append(preview)
            kinds.add(kind)
    scale = _decide_scale(chosen, rated)
    is_binary = kinds == {"polarity"} or (scale is not None and scale.name == BINARY)
    tasks = sorted(list_star_tasks()) if rated else []
    return [task for task in tasks if task != "stars" or not is_binary]


def estimate_counts(
    tasks: Sequence[str], chosen: Dump, corpus: Corpus, previews: Sequence[Preview]
) -> Counts:
    """Return what the corpus of a dump will count, about, by its first records."""
    scale, shares = _decide_scale(chosen, previews), read_shares(corpus.split)
    stars, labels = Counter[str](), {column: Counter[str]() for column in chosen.labels}
    titles = words = 0.0
    for preview in previews:
        times = preview.count / max(1, len(preview.head))
        ratings = np.array([review.rating[0] for review in preview.reviews if review.rating])
        numbers = scale.map_ratings(ratings).tolist() if scale else [5] * len(ratings)
        for number, n in Counter(numbers).items():
            stars[f"train.{number}"] += round(times * n)
        for column, counts in labels.items():
            typed = preview.count_values(column)
            values = decide_values(typed, chosen.fold_labels)
            for (split, share), (value, n) in product(shares.items(), typed.items()):
                name, texts = values.find_class(value), round(times * n * share / 100)
                count_labels(counts, split, name, values.is_multilabel, texts)
        for review in preview.reviews:
            text, title = str(review.text or ""), str(review.title or "")
            words += times * len(WORD.findall(text))
            titles += times * (corpus.title and not find_reason(title, text))
    found = {column: choose_classes(counts) for column, counts in labels.items()}
    result = {"stars": stars, "labels": found}
    lacking = [f"{LABEL}{column}" for column, one in found.items() if not one["classes"]]
    usable = [task for task in tasks if task not in lacking] or tasks
    warnings = [warn_of_label(column, one) for column, one in found.items()]
    share = shares["pretrain"] / 100
    return Counts(
        {task: count_labelled(task, result) for task in usable},
        round(share * titles),
        share * words * TOKENS_PER_WORD,
        is_estimated=True,
        left_out=[f"by the first records, {line}" for line in warnings if line],
    )


def count_corpus(tasks: Sequence[str], corpus: Stage, store: Store) -> Counts | None:
    """Return what a corpus has for the tasks, without those that have no example in a split; None
    where it is not made yet. UserError where that is all of them.
    """
    made = store.manifest(corpus)
    if not made:
        return None
    result = made["result"]
    lacking: dict[str, UserError] = {}
    for task in tasks:
        try:
            check_tasks([task], result)
        except UserError as error:
            lacking[task] = error
    if tasks and len(lacking) == len(tasks):
        raise lacking[tasks[0]]

    names = fnmatch.filter((file["path"] for file in made["files"]), "corpus-*.parquet")
    files = (store.fetch(corpus, name) / name for name in sorted(names))
    share = result["splits"].get("pretrain", 0) / max(1, result["kept"])
    return Counts(
        {task: count_labelled(task, result) for task in tasks if task not in lacking},
        count_pairs(files, policy.MIN_TITLES),
        share * result.get("sentences", 0) * TOKENS_PER_SENTENCE,
        left_out=[f"{task} is left out: {why}" for task, why in lacking.items()],
    )


def check_tasks(tasks: Sequence[str], result: Mapping[str, Any]) -> None:
    """Raise UserError where a corpus with this result has no example for a task in a split."""
    for task in tasks:
        counts, classes = find_classes(task, result)
        splits = CORPUS_SPLITS if has_dev([task], result) else SPLITS_WITHOUT_DEV
        for split in (split for split in SPLITS if classes and splits[split]):
            there = {
                label
                for value, label in classes.items()
                if any(counts.get(f"{side}.{value}") for side in splits[split])
            }
            if not there or (split == "train" and len(there) < 2):
                few = "examples of one class" if there else "no example"
                why = f"the corpus has {few} for {task} to {USES[split]}"
                raise UserError(f"{why}; take a larger dump, or larger shares (`corpus.split`)")


def find_classes(
    task: str, result: Mapping[str, Any]
) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Return the counts of a corpus by split and value, and the class of each value of a task;
    none of a task that is not of the corpus. UserError where the corpus has no such label.
    """
    if task.startswith(LABEL):
        column = task.removeprefix(LABEL)
        found = result.get("labels", {}).get(column)
        if not found:
            raise UserError("the corpus has no such label", "dump.labels", column)
        if not found["classes"]:
            about = f"label {column}: "
            raise UserError(next(line for line in result["warnings"] if line.startswith(about)))
        return found["counts"], {name: name for name in found["classes"]}
    if task == "stars" and result.get("stars_scale") == BINARY:
        raise UserError("its stars are only no and yes: leave it out", "finetuning.tasks", task)
    if task in list_star_tasks() and "stars" in result:
        of_task = list_star_tasks()[task].stars
        return result["stars"], {str(n): str(name) for n, name in of_task.items()}
    return {}, {}
