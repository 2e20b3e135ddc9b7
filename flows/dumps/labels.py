"""The tasks of a dump and its counts, by its first records and by its corpus."""

import fnmatch
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError, require, show_option
from amazon_electra.beam_jobs.labels.classes import warn_of_label
from amazon_electra.beam_jobs.labels.stars import BINARY, FIVE, Scale
from amazon_electra.beam_jobs.labels.values import decide_values
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.text.splits import read_shares
from amazon_electra.flows import policy
from amazon_electra.flows.configuration.form import Corpus, Dump
from amazon_electra.flows.dumps import preview
from amazon_electra.flows.dumps.preview import Preview
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
    tasks = list(asked) or [*own, *_list_star_tasks(chosen, previews)]
    if not (tasks or may_lack):
        file, columns = previews[0].file.name, fields.list_columns(previews[0].file.layout)
        raise UserError(
            f"{file}: no stars to train on; it has {columns}; name the one with 1 to 5 stars: "
            "`--columns stars=NAME`, or one with classes of your own: `--label NAME`"
        )
    return tasks


def check_labels(tasks: Sequence[str], chosen: Dump) -> None:
    """Raise UserError where a task is of a column that is not read as a label."""
    for column in (task.removeprefix(LABEL) for task in tasks if task.startswith(LABEL)):
        why = f"not among the labels of the dump; add {show_option('--label', column)}"
        require(column in chosen.labels, f"task {LABEL}{column}: {why}")


def _decide_scale(chosen: Dump, previews: Sequence[Preview]) -> Scale:
    """Return the scale of the stars; 1-5 where the first records leave it open."""
    with suppress(UserError):
        return preview.decide_scale(chosen, previews)
    return FIVE


def _list_star_tasks(chosen: Dump, previews: Sequence[Preview]) -> list[str]:
    """Return which of polarity and stars a file of the dump may have an example for."""
    rated = [one for one in previews if any(review.rating for review in one.reviews)]
    is_binary = _decide_scale(chosen, rated).name == BINARY
    tasks = sorted(list_star_tasks()) if rated else []
    return [task for task in tasks if task != "stars" or not is_binary]


def estimate_counts(
    tasks: Sequence[str], chosen: Dump, corpus: Corpus, previews: Sequence[Preview]
) -> Counts:
    """Return what the corpus of a dump will count, about, by its first records."""
    scale, shares = _decide_scale(chosen, previews), read_shares(corpus.split)
    share = shares.get("pretrain", 0.0) / sum(shares.values())
    labels, titles, words = Counter[str](), 0.0, 0.0
    for one in previews:
        times = one.count / max(1, len(one.head))
        ratings = np.array([review.rating[0] for review in one.reviews if review.rating])
        stars = scale.map_ratings(ratings).tolist()
        for task in tasks:
            if task.startswith(LABEL):
                typed = one.count_values(task.removeprefix(LABEL))
                find = decide_values(typed, chosen.fold_labels).find_class
                found = sum(n for value, n in typed.items() if find(value) is not None)
            else:
                found = sum(number in list_star_tasks()[task].stars for number in stars)
            labels[task] += round(times * found)
        for review in one.reviews:
            text, title = str(review.text or ""), str(review.title or "")
            words += times * len(WORD.findall(text))
            titles += times * (corpus.title and not find_reason(title, text))
    return Counts(labels, round(share * titles), share * words * TOKENS_PER_WORD, is_estimated=True)


def count_corpus(tasks: Sequence[str], corpus: Stage, store: Store) -> Counts | None:
    """Return what a corpus has for the tasks, without those that have no example in a split; None
    where it is not made yet. UserError where that is all of them.
    """
    made = store.manifest(corpus)
    if not made:
        return None
    result, lacking = made["result"], dict[str, UserError]()
    for task in tasks:
        try:
            check_task(task, result)
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


def check_task(task: str, result: Mapping[str, Any]) -> None:
    """Raise UserError where a corpus with this result has no example for a task in a split."""
    counts, classes = result["stars"], dict[Any, Any]()
    if task.startswith(LABEL):
        column = task.removeprefix(LABEL)
        found = result["labels"][column]
        require(found["classes"], warn_of_label(column, found))
        counts, classes = found["counts"], {name: name for name in found["classes"]}
    elif task in list_star_tasks():
        is_wrong = task == "stars" and result.get("stars_scale") == BINARY
        require(not is_wrong, "only no and yes: leave it out", "finetuning.tasks", task)
        classes = dict(list_star_tasks()[task].stars)
    splits = CORPUS_SPLITS if has_dev([task], result) else SPLITS_WITHOUT_DEV
    for split in (split for split in SPLITS if classes and splits[split]):
        there = {
            name
            for value, name in classes.items()
            if any(counts.get(f"{side}.{value}") for side in splits[split])
        }
        few = "examples of one class" if there else "no example"
        why = f"the corpus has {few} for {task} to {USES[split]}"
        is_enough = len(there) >= (2 if split == "train" else 1)
        require(is_enough, f"{why}; take a larger dump, or larger shares (`corpus.split`)")
