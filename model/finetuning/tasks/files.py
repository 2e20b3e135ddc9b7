"""What the formats share: opening files, which file holds which split, splitting where no split is published."""

import bz2
import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from model.command import UserMistake
from model.finetuning.examples import Example, Sampling, Split, sample, split_by_text

SHARES: Mapping[Split, int] = {"train": 80, "dev": 10, "test": 10}
"""Percent, where a format publishes no split."""
DEV_SHARE: Mapping[Split, int] = {"train": 90, "dev": 10}
"""Percent of a published training set, where no dev set is published (or the published one has to serve as test)."""
PATTERNS: Mapping[Split, tuple[str, ...]] = {
    "train": ("*train*",),
    "dev": ("*dev*", "*valid*", "*val.*", "val-*", "*testa*"),
    "test": ("*test*",),
}
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def open_text(path: Path, newline: str | None = None) -> TextIO:
    """Plain, gzip or bzip2, told apart by content; UTF-8, a byte order mark skipped, wrong bytes replaced."""
    with path.open("rb") as file:
        start = file.read(3)
    opener: Any = gzip.open if start[:2] == b"\x1f\x8b" else bz2.open if start == b"BZh" else open
    return io.TextIOWrapper(opener(path, "rb"), encoding="utf-8-sig", errors="replace", newline=newline)


def split_files(data: Path, patterns: Mapping[Split, tuple[str, ...]] = PATTERNS) -> dict[Split, list[Path]]:
    """Files of a folder by the split their names tell; a file counts for the first split that matches."""
    if data.is_file():
        return {"train": [], "dev": [], "test": []}
    files = sorted(p for p in data.iterdir() if p.is_file() and not p.name.startswith("."))
    found: dict[Split, list[Path]] = {"train": [], "dev": [], "test": []}
    taken: set[Path] = set()
    order: tuple[Split, ...] = ("test", "dev", "train")
    for split in order:
        for pattern in patterns[split]:
            matching = [f for f in files if f not in taken and f.match(pattern)]
            found[split] += matching
            taken.update(matching)
    return found


def all_files(data: Path) -> list[Path]:
    return [data] if data.is_file() else sorted(p for p in data.rglob("*") if p.is_file() and p.name[0] != ".")


def reader(
    read: Callable[[Path], Iterator[Example]],
    patterns: Mapping[Split, tuple[str, ...]] = PATTERNS,
    key: Callable[[Example], str] = lambda example: example.text,
    labelled_test: bool = True,
) -> Callable[[Path, Split, Sampling], list[Example]]:
    """A task's `read` from a function that reads one file.

    Published splits are kept. Without a dev file dev is cut from train; without a (labelled) test file the published
    dev set is the test set, so that what is chosen on dev is never measured on it; without any, all is split. Cuts
    depend on `key` alone, so that equal texts (or passages) stay together.
    """

    def examples(data: Path, split: Split, sampling: Sampling) -> list[Example]:
        found = split_files(data, patterns)
        files, shares = plan(found, split, labelled_test)
        return sample(_chosen(files or all_files(data), read, split, shares, key), sampling)

    return examples


def plan(
    found: Mapping[Split, list[Path]], split: Split, labelled_test: bool
) -> tuple[list[Path], Mapping[Split, int] | None]:
    """The files to read for a split, and the shares to cut it by (None: all of it)."""
    test = found["test"] if labelled_test else []
    if found["train"] and test and found["dev"]:
        return found[split], None
    if found["train"] and (test or found["dev"]):
        return (test or found["dev"], None) if split == "test" else (found["train"], DEV_SHARE)
    return found["train"] or found["dev"] or test, SHARES


def _chosen(
    files: Iterable[Path],
    read: Callable[[Path], Iterator[Example]],
    split: Split,
    shares: Mapping[Split, int] | None,
    key: Callable[[Example], str],
) -> Iterator[Example]:
    for path in files:
        for example in read(path):
            if shares is None or split_by_text(key(example), shares) == split:
                yield example


def table_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line (or record) number and row of a CSV, TSV, JSON lines or Parquet file."""
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".parquet"):
        yield from _parquet_rows(path)
    elif name.endswith((".jsonl", ".json", ".ndjson")):
        yield from _json_rows(path)
    else:
        yield from _delimited_rows(path, "\t" if name.endswith((".tsv", ".txt")) else ",")


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow.parquet as pq

    number = 0
    for batch in pq.ParquetFile(path).iter_batches():
        for row in batch.to_pylist():
            number += 1
            yield number, row


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except json.JSONDecodeError as error:
                    raise UserMistake(f"{path}, line {number}: not JSON ({error.msg})") from error


def _delimited_rows(path: Path, delimiter: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Tab-separated files are read without quotes, as GLUE's and Amazon's are published."""
    quoted = delimiter != "\t"
    with open_text(path, newline="") as file:
        rows = csv.DictReader(file, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        for row in rows:
            yield rows.line_num, row


def column(row: Mapping[str, Any], name: str, path: Path, line: int) -> Any:
    """A field that must be there."""
    if row.get(name) is None:
        there = ", ".join(str(key) for key in row)
        raise UserMistake(f"{path}, line {line}: no column {name!r}; its columns are {there}")
    return row[name]


def class_of(label: Any, classes: Mapping[str, int], path: Path, line: int) -> int:
    """The index of a label, or where the unknown one stands."""
    if str(label) not in classes:
        raise UserMistake(f"{path}, line {line}: label {label!r} is none of {', '.join(classes)}")
    return classes[str(label)]


def whole(text: str) -> str:
    """Without HTML line breaks and doubled spaces, as reviews are published with them."""
    return " ".join(text.replace("<br />", " ").replace("<br/>", " ").replace("<br>", " ").split())
