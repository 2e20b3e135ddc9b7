"""A user's own task: `--task table:text=review,label=class[,pair=…][,id=…][,shape=regression]`, no code.

Files are CSV, TSV, JSON lines or Parquet, one file (cut by text) or a folder with train, dev and test in their names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.finetuning.examples import Example, LeftOut, Sampling, Split, Task
from model.finetuning.tasks.files import class_of, column, is_empty, number_of, quoting_of, table_rows
from model.finetuning.tasks.splits import Part, Read, parts, planned, reader, split_files

FIELDS = ("text", "label", "pair", "id", "shape")
MOST_CLASSES = 1000


def task(name: str, data: Path, labels: Sequence[str] | None = None) -> Task:
    """`labels` are those a model was trained with; without them they are what the label column holds."""
    columns = parse(name)
    shape = columns.pop("shape", "classification")
    if shape not in ("classification", "regression"):
        raise UserMistake(f"--task {name}: shape is {shape!r}, must be classification or regression")
    found: tuple[str, ...] = ()
    if shape == "classification":
        found = tuple(labels) if labels else classes_in(data, columns["label"])
    return Task(
        name=name,
        shape="classification" if shape == "classification" else "regression",
        labels=found,
        metrics=("accuracy", "macro_f1", "ece", "loss") if found else ("pearson", "spearman", "mse"),
        read=counted(
            reader(partial(rows, columns=columns, classes=found), partial(split_parts, label=columns["label"])),
            columns["label"],
        ),
        source=f"{data}: {', '.join(f'{field} from column {c!r}' for field, c in columns.items())}",
    )


def parse(name: str) -> dict[str, str]:
    columns = {}
    for part in name.removeprefix("table:").split(","):
        field, equals, value = part.partition("=")
        if field not in FIELDS or not equals or not value:
            raise UserMistake(f"--task {name}: write table:text=COLUMN,label=COLUMN with fields {', '.join(FIELDS)}")
        columns[field] = value
    for field in ("text", "label"):
        if field not in columns:
            raise UserMistake(f"--task {name}: {field}=COLUMN is missing")
    return columns


def split_parts(data: Path, label: str) -> dict[Split, Part]:
    """Test files without labels are not read; dev serves as test where there is no other."""
    found = split_files(data)
    labelled = [path for path in found["test"] if not unlabelled_rows(path, label)]
    if labelled:
        return planned(found | {"test": labelled})
    return parts(data, labelled_test=not found["test"])


def table_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and row, with the quotes that the file itself turns out to have."""
    return table_rows(path, quoting_of(path))


def unlabelled_rows(path: Path, label: str) -> int:
    """The rows of a file none of which has a label; 0 where one has."""
    count = 0
    for _, row in table_of(path):
        if not is_empty(row.get(label)):
            return 0
        count += 1
    return count


def counted(read: Read, label: str) -> Read:
    """`read`, telling with the test examples what is in test files that have no labels."""

    def examples(data: Path, split: Split, sampling: Sampling, left_out: Counter[str]) -> list[Example]:
        if split == "test" and (rows := sum(unlabelled_rows(path, label) for path in split_files(data)["test"])):
            left_out["test file without labels"] += rows
        return read(data, split, sampling, left_out)

    return examples


def classes_in(data: Path, label: str) -> tuple[str, ...]:
    """Every label that occurs, in sorted order."""
    if not data.exists():
        raise UserMistake(f"{data}: no such file or folder; --data names the file with your examples")
    found: set[str] = set()
    for path in dict.fromkeys(path for part in split_parts(data, label).values() for path in part.files):
        for number, row in table_of(path):
            found.add(_class(row, label, path, number))
            if len(found) > MOST_CLASSES:
                raise UserMistake(
                    f"{path}: column {label!r} holds over {MOST_CLASSES} labels; for numbers add shape=regression"
                )
    if len(found) < 2:
        raise UserMistake(f"{data}: column {label!r} holds {len(found)} labels; at least two are needed")
    return tuple(sorted(found))


def _class(row: Mapping[str, Any], label: str, path: Path, line: int) -> str:
    written = str(column(row, label, path, line))
    if not written.strip():
        raise UserMistake(f"{path}, line {line}: column {label!r} is empty; fill it in or remove the row")
    return written


def rows(path: Path, columns: dict[str, str], classes: tuple[str, ...]) -> Iterator[Example | LeftOut]:
    indices = {label: i for i, label in enumerate(classes)}
    for number, row in table_of(path):
        if is_empty(row.get(columns["text"], "not there")):
            yield LeftOut("no text")
            continue
        written = _class(row, columns["label"], path, number)
        label = class_of(written, indices, path, number) if classes else number_of(written, path, number)
        text = str(column(row, columns["text"], path, number))
        pair = str(column(row, columns["pair"], path, number)) if "pair" in columns else None
        name = str(column(row, columns["id"], path, number)) if "id" in columns else f"{path.name}:{number}"
        yield Example(name, text, pair, label, slices={"words": len(text.split())})
