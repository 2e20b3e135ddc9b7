"""Declare tasks and examples, and sample them the same way for every arm.

A task module (model/finetuning/tasks) knows a format; nothing outside it does. Sampling keeps the
examples whose hash of (seed, example id) is smallest, so it streams through any number of records
in memory for the sample alone, does not depend on the order of files, and a larger sample contains
the smaller one.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from beam_jobs.core.errors import UserError

Shape = Literal["classification", "regression", "tokens", "span", "choice"]
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled input. The task's shape decides which fields are used."""

    id: str
    text: str
    """Sentence, premise or question; for `tokens` words joined by spaces."""
    pair: str | None = None
    """Second sentence; for `span` the passage that holds the answer."""
    label: int | float | None = None
    """Index of the class or right choice, or the number to predict; None if not published."""
    words: tuple[str, ...] = ()
    tags: tuple[int, ...] = ()
    """For `tokens`: one class index per word."""
    choices: tuple[str, ...] = ()
    answers: tuple[tuple[str, int], ...] = ()
    """For `span`: (answer, offset in `pair` in characters); none: the question has no answer."""
    is_swapped: bool = False
    """A copy for training with `text` and `pair` exchanged, where they have no order."""
    product: str = ""
    """What the example is about, where examples of one product stay on one side of a split."""


@dataclass(frozen=True, slots=True)
class Omission:
    """Stands in a file's stream for a record that cannot be used; counted by its reason."""

    reason: str


@dataclass(frozen=True)
class Sampling:
    """Which examples of a split are used; `n` None is all of them."""

    n: int | None = None
    seed: int = 0
    balanced: bool = False
    """Equally many of each class, as many as the rarest allows."""


@dataclass(frozen=True)
class Task:
    """A named task: where its examples come from and what is measured on them."""

    name: str
    shape: Shape
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    """Names in model/evaluation/metrics.py; the first decides on dev and compares arms."""
    read: Callable[[Path, Split, Sampling, Counter[str]], list[Example]]
    """Returns the sample of a split and counts what it leaves out by reason."""
    source: str
    question: str = ""
    """The question the task asks, in words, for the report."""
    always_answered: bool = False
    """For `span`: every question has an answer."""
    trained_as: tuple[str, ...] = ()
    """Tasks with the same training examples: a model of theirs can be measured on this one."""


make_polarity_task = partial(
    Task,
    shape="classification",
    labels=("negative", "positive"),
    metrics=("accuracy", "macro_f1", "ece", "loss"),
)
make_span_task = partial(
    Task, shape="span", labels=(), metrics=("answer_f1", "exact_match", "loss")
)


def sample_examples(examples: Iterable[Example], sampling: Sampling) -> list[Example]:
    """Return the sample in the order of its hashes, which is random but always the same."""
    if sampling.balanced:
        return _sample_balanced(examples, sampling)
    keyed = ((hash_example_id(e.id, sampling.seed), e.id, e) for e in examples)
    kept = (
        sorted(keyed, key=_get_sort_key)
        if sampling.n is None
        else heapq.nsmallest(sampling.n, keyed, key=_get_sort_key)
    )
    return [example for _, _, example in kept]


def hash_example_id(example_id: str, seed: int) -> int:
    """Return a number that orders examples at random, the same on every machine."""
    return int.from_bytes(
        hashlib.blake2b(f"{seed}:{example_id}".encode(), digest_size=8).digest(), "big"
    )


def _get_sort_key(entry: tuple[int, str, Example]) -> tuple[int, str]:
    return entry[:2]


def _sample_balanced(examples: Iterable[Example], sampling: Sampling) -> list[Example]:
    """Fill the classes separately; memory is `n` examples of each."""
    classes: dict[int | float | None, list[tuple[int, str, Example]]] = {}
    for example in examples:
        of_class = classes.setdefault(example.label, [])
        of_class.append((hash_example_id(example.id, sampling.seed), example.id, example))
        if sampling.n is not None and len(of_class) > 2 * sampling.n + 64:
            of_class[:] = heapq.nsmallest(sampling.n, of_class, key=_get_sort_key)
    if not classes:
        return []
    size = min(len(of_class) for of_class in classes.values())
    if sampling.n is not None:
        size = min(size, sampling.n // len(classes))
    kept = [
        entry
        for of_class in classes.values()
        for entry in heapq.nsmallest(size, of_class, key=_get_sort_key)
    ]
    return [example for _, _, example in sorted(kept, key=_get_sort_key)]


def assign_split(text: str, shares: Mapping[Split, int]) -> Split:
    """Choose the split of a text for formats that publish none: equal texts (case and spaces aside)
    fall on the same side.

    `shares` are percentages, e.g. {"train": 80, "dev": 10, "test": 10}.
    """
    digest = hashlib.blake2b(
        fold_text(text).encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    place = int.from_bytes(digest, "big") % sum(shares.values())
    for split, share in shares.items():
        if place < share:
            return split
        place -= share
    raise AssertionError("the shares cover every place")


@lru_cache(maxsize=2)
def fold_text(text: str) -> str:
    """Return the text in one case with single spaces."""
    return " ".join(text.casefold().split())


def assign_fold(text: str, folds: int) -> tuple[int, bool]:
    """Return the fold of a text, from 1, and whether it is dev where that fold is not test: equal
    texts (case and spaces aside) are alike in both.
    """
    folded = fold_text(text).encode("utf-8", "surrogatepass")
    place = int.from_bytes(hashlib.blake2b(folded, digest_size=8, person=b"fold").digest(), "big")
    return 1 + place % folds, place // folds % 10 == 0


def _read_fold(
    task: Task, data: Path, split: Split, fold: str, left_out: Counter[str]
) -> Iterable[Example]:
    """Yield the examples of a split of a fold, K/N, out of those of all splits."""
    number, folds = map(int, fold.split("/"))
    for side in SPLITS:
        for example in task.read(data, side, Sampling(), left_out):
            own, is_dev = assign_fold(example.text, folds)
            if split == ("test" if own == number else "dev" if is_dev else "train"):
                yield example


def load_examples(
    task: Task,
    data: Path,
    split: Split,
    sampling: Sampling,
    left_out: Counter[str] | None = None,
    fold: str = "",
) -> list[Example]:
    """Return the examples of a split, or of a split of a fold K/N of all examples, counting in
    `left_out` those that cannot be used.

    Raises a UserError that says in one line what is wrong with the data. Only classes can be
    balanced.
    """
    if not data.exists():
        raise UserError(
            f"{data}: no such file or folder; --data names the data of the task {task.name}"
        )
    if task.shape != "classification":
        sampling = replace(sampling, balanced=False)
    counts: Counter[str] = Counter() if left_out is None else left_out
    if fold:
        examples = sample_examples(_read_fold(task, data, split, fold, counts), sampling)
    else:
        examples = task.read(data, split, sampling, counts)
    if not examples:
        raise UserError(explain_empty_split(task, data, split, counts))
    if split == "train" and task.shape == "classification":
        _check_classes(task, data, examples)
    return examples


def explain_empty_split(task: Task, data: Path, split: Split, left_out: Mapping[str, int]) -> str:
    why = "".join(f"; {n} left out: {reason}" for reason, n in left_out.items())
    return f"{data}: task {task.name} finds no example in its {split} split{why}"


def _check_classes(task: Task, data: Path, examples: list[Example]) -> None:
    counts = Counter(example.label for example in examples)
    if len(counts) < 2:
        only = task.labels[int(next(iter(counts)) or 0)]
        raise UserError(
            f"{data}: all {len(examples)} training examples of {task.name} are {only!r}; "
            "nothing can be learnt from one class: take more examples (--set n_train=N) or other "
            "data"
        )
