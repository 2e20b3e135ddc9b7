"""Find or cut the splits of a data set, and keep every input on one side."""

import hashlib
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core.copies import fold_text
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.model.finetuning.examples import (
    SPLITS,
    Example,
    Omission,
    Sampling,
    Split,
    Task,
    assign_split,
    explain_empty_split,
    sample_examples,
)

SHARES: Mapping[Split, int] = {"train": 80, "dev": 10, "test": 10}
"""Percent, where a format publishes no split."""
DEV_SHARE: Mapping[Split, int] = {"train": 90, "dev": 10}
"""Percent of a training set that serves as dev, where none (or only test's) is published."""
SPLIT_WORDS: Mapping[Split, tuple[str, ...]] = {
    "train": ("train", "training", "trainset", "traindata"),
    "dev": ("dev", "devset", "development", "val", "valid", "validation", "testa"),
    "test": ("test", "testing", "testset", "testdata", "testb"),
}
"""Words of a file's name, in any case: latest_train.csv is train, devices.csv is nothing."""
SPLIT_OF: Mapping[str, Split] = {word: split for split, w in SPLIT_WORDS.items() for word in w}
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
NOTES = frozenset(("readme", "license", "licence", "citation", "notice", "changelog", "copying"))
NOT_DATA = frozenset(
    (".md", ".rst", ".html", ".pdf", ".py", ".ipynb", ".sh", ".yaml", ".yml", ".zip", ".log")
)
READ_WHOLE = 8 << 20
"""Bytes of files also searched for texts on two sides; of larger ones a part is read."""
LATER_SPLITS: Mapping[Split, tuple[Split, ...]] = {
    "train": ("dev", "test"),
    "dev": ("test",),
    "test": (),
}


@dataclass(frozen=True)
class SplitSource:
    """The files that hold the examples of a split."""

    files: tuple[Path, ...]
    shares: Mapping[Split, int] | None = None
    """Percentages by which the files are cut; None: all that is in them."""


def list_data_files(data: Path, leave_out: Iterable[str] = ()) -> list[Path]:
    """Return the files of a folder, or else of those below it, but notes and `leave_out`."""

    def is_data(path: Path) -> bool:
        name = path.name.lower()
        if name.startswith(".") or not path.is_file() or name.partition(".")[0] in NOTES:
            return False
        plain = Path(name.removesuffix(".gz").removesuffix(".bz2"))
        return plain.suffix not in NOT_DATA and not any(Path(name).match(p) for p in leave_out)

    if data.is_file():
        return [data]
    if here := [path for path in data.iterdir() if is_data(path)]:
        return sorted(here)
    every = [path for path in data.rglob("*") if is_data(path)]
    return sorted(
        path
        for path in every
        if not any(part.startswith(".") for part in path.relative_to(data).parts)
    )


def group_by_split(files: Iterable[Path], data: Path) -> dict[Split, list[Path]]:
    """Group files by the split that a word of the name, or of the nearest folder above, names;
    files whose name has none are left out.
    """
    found: dict[Split, list[Path]] = {split: [] for split in SPLITS}
    for path in files:
        for name in reversed(path.relative_to(data).parts):
            words = re.findall("[a-z]+", CAMEL.sub(" ", name).lower())
            named = {SPLIT_OF[word] for word in words if word in SPLIT_OF}
            require(len(named) < 2, f"{path}: its name says {' and '.join(sorted(named))}")
            if named:
                found[named.pop()].append(path)
                break
    return found


def plan_splits(
    data: Path, leave_out: Iterable[str] = (), labelled_test: bool = True
) -> dict[Split, SplitSource]:
    """Plan the splits of a folder or file. Published ones stay; without a dev file dev is cut from
    train; without a labelled test file the published dev is the test set.
    """
    files = list_data_files(data, leave_out)
    found = group_by_split([] if data.is_file() else files, data)
    require(files, f"{data}: no data file in it")
    if any(found.values()) and not labelled_test:
        name = " and ".join(path.name for path in found["test"])
        is_labelled = found["train"] or found["dev"]
        require(is_labelled, f"{data}: {name} alone has no published labels")
        found["test"] = []
    return plan_missing_splits(found, files)


def plan_missing_splits(
    found: Mapping[Split, list[Path]], files: Iterable[Path] = ()
) -> dict[Split, SplitSource]:
    """Complete the splits that were found by cutting those that are missing; all of `files` where
    none was found.
    """
    train, dev, test = (tuple(found[split]) for split in SPLITS)
    if train and dev and test:
        return {"train": SplitSource(train), "dev": SplitSource(dev), "test": SplitSource(test)}
    if train and (dev or test):
        cut = SplitSource(train, DEV_SHARE)
        return {"train": cut, "dev": cut, "test": SplitSource(test or dev)}
    return {split: SplitSource(train or dev or test or tuple(files), SHARES) for split in SPLITS}


@dataclass(frozen=True)
class SplitReader:
    """A task's `read`, of a function that reads one file. Cuts depend on `key` alone, so that equal
    texts (passages, products) stay together; an input of test is left out of dev and train, one of
    dev out of train.
    """

    read: Callable[[Path], Iterator[Example | Omission]]
    parts: Callable[[Path], Mapping[Split, SplitSource]] = plan_splits
    key: Callable[[Example], str] = lambda example: example.text
    key_is_input: bool = True
    is_ordered: bool = True
    """Whether the two texts of an example have an order; else the training sample holds both."""
    finish: Callable[[Example], Example] | None = None
    """Completes an example that is in the sample."""

    def __call__(
        self, data: Path, split: Split, sampling: Sampling, left_out: Counter[str]
    ) -> Sequence[Example]:
        held = self._hash_later_inputs(data, split)
        sample = sample_examples(self._read_split(data, split, held, left_out), sampling)
        if self.finish is not None:
            sample = [*map(self.finish, sample)]
        if split != "train" or self.is_ordered:
            return sample
        swapped = (
            replace(e, id=f"{e.id}:swapped", text=str(e.pair), pair=e.text, is_swapped=True)
            for e in sample
        )
        return [*sample, *(e for e in swapped if not _is_in_sorted(held, hash_input(e)))]

    def check(self, task: Task, data: Path) -> None:
        """Raise UserError for files that cannot be read, and splits of no example or one class."""
        files = {file for part in self.parts(data).values() for file in part.files}
        is_small = sum(file.stat().st_size for file in files) <= READ_WHOLE
        for split in SPLITS:
            left_out: Counter[str] = Counter()
            held = self._hash_later_inputs(data, split) if is_small else array("Q")
            classes = 2 if split == "train" and task.shape == "classification" and is_small else 1
            found = set()
            for example in self._read_split(data, split, held, left_out):
                found.add(example.label)
                if len(found) == classes:
                    break
            require(len(found) >= classes, explain_empty_split(task, data, split, left_out))

    def _read_split(
        self, data: Path, split: Split, held: Sequence[int], left_out: Counter[str]
    ) -> Iterator[Example]:
        """Yield the examples whose inputs no later split has; `held` are their sorted hashes."""
        for example in self._read_source(self.parts(data)[split], split):
            if isinstance(example, Omission):
                left_out[example.reason] += 1
            elif held and _is_in_sorted(held, hash_input(example)):
                left_out["input also in a later split"] += 1
            else:
                yield example

    def _read_source(self, part: SplitSource, split: Split) -> Iterator[Example | Omission]:
        for path in part.files:
            for example in self.read(path):
                if (
                    part.shares is None
                    or isinstance(example, Omission)
                    or assign_split(self.key(example), part.shares) == split
                ):
                    yield example

    def _hash_later_inputs(self, data: Path, split: Split) -> array:
        """Return the sorted hashes of the inputs of later splits."""
        every = self.parts(data)
        held = array("Q")
        for later in LATER_SPLITS[split]:
            if not (self.key_is_input and every[later].files == every[split].files):
                held.extend(
                    hash_input(e)
                    for e in self._read_source(every[later], later)
                    if isinstance(e, Example)
                )
        np.frombuffer(held, dtype=np.uint64).sort()
        return held


def check_data(task: Task, data: Path) -> None:
    """Raise UserError where files of a task are wrong; of a corpus its counts decide."""
    if check := getattr(task.read, "check", None):
        check(task, data)


def get_passage(example: Example) -> str:
    """Return the passage, by which questions are cut."""
    return str(example.pair)


def _is_in_sorted(held: Sequence[int], wanted: int) -> bool:
    place = bisect_left(held, wanted)
    return place < len(held) and held[place] == wanted


def hash_input(example: Example) -> int:
    """Return 64 bits of what a network is shown, case and spaces aside."""
    shown = "\x1f".join(map(fold_text, (example.text, example.pair or "", *example.choices)))
    return int.from_bytes(
        hashlib.blake2b(shown.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )
