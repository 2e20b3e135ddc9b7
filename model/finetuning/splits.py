"""Find or cut the splits of a data set, and keep every input on one side."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.model_folder.copies import fold_text
from amazon_electra.model.finetuning.examples import (
    SPLITS,
    Example,
    Omission,
    Sampling,
    Split,
    Task,
    assign_split,
    explain_empty_split,
    hash_text,
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


@dataclass(frozen=True)
class SplitSource:
    """The files that hold the examples of a split."""

    files: tuple[Path, ...]
    shares: Mapping[Split, int] | None = None
    """Percentages by which the files are cut; None: all that is in them."""


def list_data_files(data: Path, leave_out: Iterable[str] = ()) -> list[Path]:
    """Return the files of a folder but notes and `leave_out`, or the file that `data` is."""

    def is_data(path: Path) -> bool:
        name = path.name.lower()
        if name.startswith(".") or not path.is_file() or name.partition(".")[0] in NOTES:
            return False
        plain = Path(name.removesuffix(".gz").removesuffix(".bz2"))
        return plain.suffix not in NOT_DATA and not any(Path(name).match(p) for p in leave_out)

    return [data] if data.is_file() else sorted(filter(is_data, data.iterdir()))


def group_by_split(files: Iterable[Path]) -> dict[Split, tuple[Path, ...]]:
    """Group files by the split that a word of the name says; others are left out."""
    found: dict[Split, tuple[Path, ...]] = dict.fromkeys(SPLITS, ())
    for path in files:
        words = re.findall("[a-z]+", CAMEL.sub(" ", path.name).lower())
        named = {SPLIT_OF[word] for word in words if word in SPLIT_OF}
        require(len(named) < 2, f"{path}: its name says {' and '.join(sorted(named))}")
        for split in named:
            found[split] += (path,)
    return found


def plan_splits(
    data: Path, leave_out: Iterable[str] = (), labelled_test: bool = True
) -> dict[Split, SplitSource]:
    """Plan the splits of a folder or file. Published ones stay; without a dev file dev is cut from
    train; without a labelled test file the published dev is the test set; what has no split in its
    name is cut.
    """
    files = list_data_files(data, leave_out)
    require(files, f"{data}: no data file in it")
    train, dev, test = group_by_split(files if data.is_dir() else ()).values()
    if test and not labelled_test:
        names = " and ".join(path.name for path in test)
        require(train or dev, f"{data}: {names} alone has no published labels")
        test = ()
    if train and dev and test:
        return {"train": SplitSource(train), "dev": SplitSource(dev), "test": SplitSource(test)}
    if train and (dev or test):
        cut = SplitSource(train, DEV_SHARE)
        return {"train": cut, "dev": cut, "test": SplitSource(test or dev)}
    every = train or dev or test or tuple(files)
    return dict.fromkeys(SPLITS, SplitSource(every, SHARES))


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
        return [*sample, *(e for e in swapped if hash_input(e) not in held)]

    def check(self, task: Task, data: Path) -> None:
        """Raise UserError for files that cannot be read, and splits without an example."""
        for split in SPLITS:
            left_out: Counter[str] = Counter()
            found = next(self._read_split(data, split, (), left_out), None)
            require(found is not None, explain_empty_split(task, data, split, left_out))

    def _read_split(
        self, data: Path, split: Split, held: Collection[int], left_out: Counter[str]
    ) -> Iterator[Example]:
        """Yield the examples whose inputs no later split has; `held` are their hashes."""
        for example in self._read_source(self.parts(data)[split], split):
            if isinstance(example, Omission):
                left_out[example.reason] += 1
            elif held and hash_input(example) in held:
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

    def _hash_later_inputs(self, data: Path, split: Split) -> set[int]:
        every = self.parts(data)
        return {
            hash_input(example)
            for later in SPLITS[SPLITS.index(split) + 1 :]
            if not (self.key_is_input and every[later].files == every[split].files)
            for example in self._read_source(every[later], later)
            if isinstance(example, Example)
        }


def check_data(task: Task, data: Path) -> None:
    """Raise UserError where files of a task are wrong; of a corpus its counts decide."""
    if check := getattr(task.read, "check", None):
        check(task, data)


def get_passage(example: Example) -> str:
    return str(example.pair)


def hash_input(example: Example) -> int:
    """Return 64 bits of what a network is shown, case and spaces aside."""
    shown = (example.text, example.pair or "", *example.choices)
    return hash_text("\x1f".join(map(fold_text, shown)))
