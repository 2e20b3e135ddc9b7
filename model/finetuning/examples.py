"""Declares tasks, and samples their examples alike for every arm: those of the smallest hashes."""

import hashlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappush, heappushpop
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Literal

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.model_folder.copies import fold_text

Shape = Literal["classification", "multilabel", "regression", "tokens", "span", "choice"]
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
    """For `tokens`: one class index per word; for `multilabel` a 1 or 0 for each class."""
    choices: tuple[str, ...] = ()
    answers: tuple[tuple[str, int], ...] = ()
    """For `span`: (answer, offset in `pair` in characters); none: the question has no answer."""
    is_swapped: bool = False
    """A copy for training with `text` and `pair` exchanged, where they have no order."""
    product: str = ""
    """Product of the example, where those of one product stay on one side of a split."""


@dataclass(frozen=True, slots=True)
class Omission:
    """Stands in a file's stream for a record that cannot be used; counted by its reason."""

    reason: str


@dataclass(frozen=True)
class Sampling:
    """The examples of a split that are used; `n` None: all of them."""

    n: int | None = None
    seed: int = 0
    balanced: bool = False
    """Equally many of each class, as many as the rarest allows."""
    has_dev: bool = True
    """False: a corpus has no dev split; its reviews are test too."""


@dataclass(frozen=True)
class Task:
    """A named task: where its examples come from and what is measured on them."""

    name: str
    shape: Shape
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    """Names in model/evaluation/metrics.py; the first decides on dev and compares arms."""
    read: Callable[[Path, Split, Sampling, Counter[str]], Sequence[Example]]
    """Returns the sample of a split and counts what it leaves out by reason."""
    source: str
    question: str = ""
    """The question the task asks, in words, for the report."""
    always_answered: bool = False
    """For `span`: every question has an answer."""
    stars: Mapping[int, int] = field(default_factory=dict)
    """Stars → class, of a task on a corpus's reviews with stars; others are left out."""
    phrases: tuple[tuple[str, ...], ...] = ()
    """Short texts that say each class, as a writer titles a review (model/arms/phrases.py)."""
    trained_as: tuple[str, ...] = ()
    """Tasks with the same training examples: a model of theirs can be measured on this one."""


CLASS_METRICS = ("accuracy", "macro_f1", "ece", "loss")
STEP_METRICS = ("accuracy", "macro_f1", "mae", "within_one", "kappa", "ece", "loss")
SET_METRICS = ("micro_f1", "macro_f1", "subset_accuracy", "loss")
"""Metrics of classes, of classes that are steps of a scale, and of several classes at once."""

make_span_task = partial(
    Task, shape="span", labels=(), metrics=("answer_f1", "exact_match", "loss")
)


class Sampler:
    """Takes the examples of a stream one by one, and keeps those of the smallest hashes."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._heaps: dict[Any, list[tuple[int, int, Example]]] = defaultdict(list)
        """By class where classes are balanced: negative hash, number and example."""
        self._numbers = count(0, -1)  # of equal hashes the first example stays

    def wants(self, example_id: str, label: int | float | None) -> bool:
        """Return whether such an example may be in the sample."""
        heap, n = self._find_heap(label), self._sampling.n
        is_full = n is not None and len(heap) >= n
        return not is_full or hash_example_id(example_id, self._sampling.seed) < -heap[0][0]

    def add(self, example: Example) -> None:
        heap, n = self._find_heap(example.label), self._sampling.n
        item = -hash_example_id(example.id, self._sampling.seed), next(self._numbers), example
        if n is None:
            heap.append(item)  # sorted at the end
        elif len(heap) < n:
            heappush(heap, item)
        else:
            heappushpop(heap, item)

    def finish(self) -> list[Example]:
        """Return the sample in the order of its hashes, which is random but always the same."""
        n, heaps = self._sampling.n, [*self._heaps.values()]
        if self._sampling.balanced and heaps:
            size = min(map(len, heaps))
            n = size if n is None else min(size, n // len(heaps))
        kept = [item for heap in heaps for item in sorted(heap, reverse=True)[:n]]
        return [example for *_, example in sorted(kept, reverse=True)]

    def _find_heap(self, label: int | float | None) -> list[tuple[int, int, Example]]:
        return self._heaps[label if self._sampling.balanced else None]


def sample_examples(examples: Iterable[Example], sampling: Sampling) -> list[Example]:
    sampler = Sampler(sampling)
    for example in examples:
        sampler.add(example)
    return sampler.finish()


def hash_text(text: str) -> int:
    """Return 64 bits of a text, the same on every machine."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def hash_example_id(example_id: str, seed: int) -> int:
    """Return a number that orders examples at random."""
    return hash_text(f"{seed}:{example_id}")


def assign_split(text: str, shares: Mapping[Split, int]) -> Split:
    """Choose the split of a text, of equal ones (case, spaces aside) the same; `shares` in %."""
    ends = list(accumulate(shares.values()))
    return list(shares)[bisect_right(ends, hash_text(fold_text(text)) % ends[-1])]


def load_examples(
    task: Task, data: Path, split: Split, sampling: Sampling, left_out: Counter[str] | None = None
) -> Sequence[Example]:
    """Return the examples of a split, counting in `left_out` those that cannot be used."""
    require(data.exists(), "no such file or folder", "data", data)
    if task.shape != "classification":
        sampling = replace(sampling, balanced=False)
    counts: Counter[str] = Counter() if left_out is None else left_out
    examples = task.read(data, split, sampling, counts)
    require(examples, explain_empty_split(task, data, split, counts))
    is_of_classes = split == "train" and task.shape == "classification"
    is_one = is_of_classes and len({example.label for example in examples}) == 1
    require(not is_one, f"{data}: {task.name} has one class in train: raise `n_train`")
    return examples


def explain_empty_split(task: Task, data: Path, split: Split, left_out: Mapping[str, int]) -> str:
    """Say what a split lacks, and how many examples were left out why."""
    why = "".join(f"; {n} left out: {reason}" for reason, n in left_out.items())
    return f"{data}: task {task.name} finds too few examples in its {split} split{why}"
