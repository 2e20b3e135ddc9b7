"""Read a user's own task without code: `--task
table:text=review,label=class[,pair=…][,id=…][,shape=regression]`.

Files are CSV, TSV, JSON lines or Parquet, one file (cut by text) or a folder with train, dev and
test in their names.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.finetuning.examples import Example, Omission, Split, Task
from amazon_electra.model.finetuning.files import (
    detect_quoting,
    find_class,
    get_column,
    is_empty,
    parse_number,
    read_table_rows,
)
from amazon_electra.model.finetuning.splits import (
    SplitReader,
    SplitSource,
    list_split_files,
    plan_missing_splits,
    plan_splits,
)

FIELDS = ("text", "label", "pair", "id", "shape")
MAX_CLASSES = 1000


def make_table_task(name: str, data: Path, labels: Sequence[str] | None = None) -> Task:
    """Return the task; its classes are `labels`, or else those of the label column."""
    columns = parse_task_name(name)
    shape = columns.pop("shape", "classification")
    if shape not in ("classification", "regression"):
        raise UserError(f"shape is {shape!r}, must be classification or regression", "task", name)
    found: tuple[str, ...] = ()
    if shape == "classification":
        found = tuple(labels) if labels else find_classes(data, columns["label"])
    return Task(
        name=name,
        shape="classification" if shape == "classification" else "regression",
        labels=found,
        metrics=("accuracy", "macro_f1", "ece", "loss")
        if found
        else ("pearson", "spearman", "mse"),
        read=SplitReader(
            partial(read_table_examples, columns=columns, classes=found),
            partial(plan_table_splits, label=columns["label"]),
            count_unread=partial(count_unlabelled_tests, label=columns["label"]),
        ),
        source=f"{data}: {', '.join(f'{field} from column {c!r}' for field, c in columns.items())}",
    )


def parse_task_name(name: str) -> dict[str, str]:
    columns = {}
    for part in name.removeprefix("table:").split(","):
        field, equals, value = part.partition("=")
        if field not in FIELDS or not equals or not value:
            raise UserError(
                f"write table:text=COLUMN,label=COLUMN with fields {', '.join(FIELDS)}",
                "task",
                name,
            )
        columns[field] = value
    for field in ("text", "label"):
        if field not in columns:
            raise UserError(f"{field}=COLUMN is missing", "task", name)
    return columns


def plan_table_splits(data: Path, label: str) -> dict[Split, SplitSource]:
    """Plan the splits without unlabelled test files; dev serves as test where there is no other."""
    found = list_split_files(data)
    labelled = [path for path in found["test"] if not count_unlabelled_rows(path, label)]
    if labelled:
        return plan_missing_splits(found | {"test": labelled})
    return plan_splits(data, labelled_test=not found["test"])


def read_user_table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and row, with the quotes that the file itself turns out to have."""
    return read_table_rows(path, detect_quoting(path))


def count_unlabelled_rows(path: Path, label: str) -> int:
    """Return the number of rows of a file without any label; 0 where one row has a label."""
    count = 0
    for _, row in read_user_table(path):
        if not is_empty(row.get(label)):
            return 0
        count += 1
    return count


def count_unlabelled_tests(data: Path, split: Split, label: str) -> dict[str, int]:
    """Return how many rows are in test files without labels."""
    files = list_split_files(data)["test"] if split == "test" else []
    rows = sum(count_unlabelled_rows(path, label) for path in files)
    return {"test file without labels": rows} if rows else {}


def find_classes(data: Path, label: str) -> tuple[str, ...]:
    """Return every label that occurs, in sorted order."""
    if not data.exists():
        raise UserError("no such file or folder; name the file with your examples", "data", data)
    found: set[str] = set()
    for path in dict.fromkeys(
        path for part in plan_table_splits(data, label).values() for path in part.files
    ):
        for number, row in read_user_table(path):
            found.add(_get_label(row, label, path, number))
            if len(found) > MAX_CLASSES:
                raise UserError(
                    f"{path}: column {label!r} holds over {MAX_CLASSES} labels; for numbers add "
                    "shape=regression"
                )
    if len(found) < 2:
        raise UserError(
            f"{data}: column {label!r} holds {len(found)} labels; at least two are needed"
        )
    return tuple(sorted(found))


def _get_label(row: Mapping[str, Any], label: str, path: Path, line: int) -> str:
    written = str(get_column(row, label, path, line))
    if not written.strip():
        raise UserError(
            f"{path}, line {line}: column {label!r} is empty; fill it in or remove the row"
        )
    return written


def read_table_examples(
    path: Path, columns: dict[str, str], classes: tuple[str, ...]
) -> Iterator[Example | Omission]:
    indices = {label: i for i, label in enumerate(classes)}
    for number, row in read_user_table(path):
        if is_empty(row.get(columns["text"], "not there")):
            yield Omission("no text")
            continue
        if not isinstance(row.get(columns["text"], ""), str):
            yield Omission("text is not a string")
            continue
        written = _get_label(row, columns["label"], path, number)
        label = (
            find_class(written, indices, path, number)
            if classes
            else parse_number(written, path, number)
        )
        text = str(get_column(row, columns["text"], path, number))
        pair = str(get_column(row, columns["pair"], path, number)) if "pair" in columns else None
        name = (
            str(get_column(row, columns["id"], path, number))
            if "id" in columns
            else f"{path.name}:{number}"
        )
        yield Example(name, text, pair, label)
