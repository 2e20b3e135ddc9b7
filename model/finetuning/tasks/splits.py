"""Which file holds which split, what is cut where a split is not published, and no input on two sides."""

import hashlib
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model.command import UserMistake
from model.finetuning.examples import SPLITS, Example, LeftOut, Sampling, Split, folded, sample, split_by_text

SHARES: Mapping[Split, int] = {"train": 80, "dev": 10, "test": 10}
"""Percent, where a format publishes no split."""
DEV_SHARE: Mapping[Split, int] = {"train": 90, "dev": 10}
"""Percent of a published training set, where no dev set is published (or the published one has to serve as test)."""
NAMES: Mapping[Split, tuple[str, ...]] = {
    "train": ("train", "training", "trainset", "traindata"),
    "dev": ("dev", "devset", "development", "val", "valid", "validation", "testa"),
    "test": ("test", "testing", "testset", "testdata", "testb"),
}
"""Words of a file's name, in any case: latest_train.csv is train, devices.csv is nothing."""
SPLIT_OF: Mapping[str, Split] = {word: split for split, words in NAMES.items() for word in words}
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
NOTES = frozenset(("readme", "license", "licence", "citation", "notice", "changelog", "copying"))
NOT_DATA = frozenset((".md", ".rst", ".html", ".pdf", ".py", ".ipynb", ".sh", ".yaml", ".yml", ".zip", ".log"))
LATER: Mapping[Split, tuple[Split, ...]] = {"train": ("dev", "test"), "dev": ("test",), "test": ()}

Read = Callable[[Path, Split, Sampling, Counter[str]], list[Example]]


@dataclass(frozen=True)
class Part:
    """Where the examples of a split lie."""

    files: tuple[Path, ...]
    shares: Mapping[Split, int] | None = None
    """The files are cut by these, percent; None: all that is in them."""


def data_files(data: Path, leave_out: Iterable[str] = ()) -> list[Path]:
    """The files of a folder, or of those below it where it has none itself; notes and what matches are left out."""
    if data.is_file():
        return [data]
    here = [path for path in data.iterdir() if _holds_data(path, leave_out)]
    below = here or [path for path in data.rglob("*") if _holds_data(path, leave_out) and not _hidden(path, data)]
    return sorted(below)


def _holds_data(path: Path, leave_out: Iterable[str]) -> bool:
    name = path.name.lower()
    if name.startswith(".") or not path.is_file() or name.partition(".")[0] in NOTES:
        return False
    plain = name.removesuffix(".gz").removesuffix(".bz2")
    return Path(plain).suffix not in NOT_DATA and not any(Path(name).match(pattern) for pattern in leave_out)


def _hidden(path: Path, data: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(data).parts)


def split_files(data: Path, leave_out: Iterable[str] = ()) -> dict[Split, list[Path]]:
    """Files by the split that their names tell; those of one that tells none are not among them."""
    return by_name([] if data.is_file() else data_files(data, leave_out), data)


def by_name(files: Iterable[Path], data: Path) -> dict[Split, list[Path]]:
    """A word of a file's own name tells its split, or of the nearest folder above it that tells one."""
    found: dict[Split, list[Path]] = {split: [] for split in SPLITS}
    for path in files:
        for name in reversed(path.relative_to(data).parts):
            told = {SPLIT_OF[word] for word in re.findall("[a-z]+", CAMEL.sub(" ", name).lower()) if word in SPLIT_OF}
            if len(told) > 1:
                raise UserMistake(f"{path}: its name tells {' and '.join(sorted(told))}; rename it after one split")
            if told:
                found[told.pop()].append(path)
                break
    return found


def parts(data: Path, leave_out: Iterable[str] = (), labelled_test: bool = True) -> dict[Split, Part]:
    """The splits of a folder, or of one file.

    Published splits are kept. Without a dev file dev is cut from train; without a (labelled) test file the published
    dev set is the test set, so that what is chosen on dev is never measured on it; without any, all is split.
    """
    found = split_files(data, leave_out)
    if not any(found.values()):
        return undivided(data, leave_out)
    if not labelled_test:
        if not found["train"] and not found["dev"]:
            raise UserMistake(
                f"{data}: only {found['test'][0].name}, whose labels are not published; add train and dev"
            )
        found["test"] = []
    return planned(found)


def undivided(data: Path, leave_out: Iterable[str] = ()) -> dict[Split, Part]:
    """All files cut, whatever their names: for formats that publish no split."""
    files = tuple(data_files(data, leave_out))
    if not files:
        raise UserMistake(f"{data}: no data file in it")
    return {split: Part(files, SHARES) for split in SPLITS}


def planned(found: Mapping[Split, list[Path]]) -> dict[Split, Part]:
    train, dev, test = (tuple(found[split]) for split in SPLITS)
    if train and dev and test:
        return {"train": Part(train), "dev": Part(dev), "test": Part(test)}
    if train and (dev or test):
        return {"train": Part(train, DEV_SHARE), "dev": Part(train, DEV_SHARE), "test": Part(test or dev)}
    return {split: Part(train or dev or test, SHARES) for split in SPLITS}


def reader(
    read: Callable[[Path], Iterator[Example | LeftOut]],
    parts: Callable[[Path], Mapping[Split, Part]] = parts,
    key: Callable[[Example], str] = lambda example: example.text,
    key_is_input: bool = True,
) -> Read:
    """A task's `read` from a function that reads one file.

    Cuts depend on `key` alone, so that equal texts (or passages, or products) stay together. An input of test is left
    out of dev and train, one of dev out of train; cuts by a part of the input need no looking for that.
    """

    def examples(data: Path, split: Split, sampling: Sampling, left_out: Counter[str]) -> list[Example]:
        every = parts(data)
        held = array("Q")
        for later in LATER[split]:
            if not (key_is_input and every[later].files == every[split].files):
                held.extend(input_hash(e) for e in _of(every[later], read, later, key) if isinstance(e, Example))
        np.frombuffer(held, dtype=np.uint64).sort()
        return sample(_kept(_of(every[split], read, split, key), held, left_out), sampling)

    return examples


def passage(example: Example) -> str:
    """What questions are cut by."""
    return str(example.pair)


def _of(
    part: Part, read: Callable[[Path], Iterator[Example | LeftOut]], split: Split, key: Callable[[Example], str]
) -> Iterator[Example | LeftOut]:
    for path in part.files:
        for example in read(path):
            if part.shares is None or isinstance(example, LeftOut) or split_by_text(key(example), part.shares) == split:
                yield example


def _kept(examples: Iterable[Example | LeftOut], held: Sequence[int], left_out: Counter[str]) -> Iterator[Example]:
    """`held` are sorted hashes, 8 bytes each: a published test set may have hundreds of thousands of inputs."""
    for example in examples:
        if isinstance(example, LeftOut):
            left_out[example.reason] += 1
        elif held and _among(held, input_hash(example)):
            left_out["input also in a later split"] += 1
        else:
            yield example


def _among(held: Sequence[int], wanted: int) -> bool:
    place = bisect_left(held, wanted)
    return place < len(held) and held[place] == wanted


def input_hash(example: Example) -> int:
    """64 bits of what a network is shown, case and spaces aside."""
    shown = "\x1f".join(map(folded, (example.text, example.pair or "", *example.choices)))
    return int.from_bytes(hashlib.blake2b(shown.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
