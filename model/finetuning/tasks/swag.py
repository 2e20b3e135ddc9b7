"""SWAG (Zellers et al. 2018): which of four endings follows; train.csv, val.csv, test.csv as published."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from model.finetuning.examples import Example, Task
from model.finetuning.tasks.files import class_of, column, table_rows
from model.finetuning.tasks.splits import parts, reader

ENDINGS = 4
CLASSES = {str(i): i for i in range(ENDINGS)}


def questions(path: Path) -> Iterator[Example]:
    """The shared beginning is `sent1`; a choice is `sent2` with an ending."""
    for number, row in table_rows(path):
        begun = str(column(row, "sent2", path, number))
        choices = tuple(f"{begun} {column(row, f'ending{i}', path, number)}" for i in range(ENDINGS))
        label = class_of(column(row, "label", path, number), CLASSES, path, number)
        yield Example(f"{path.name}:{number}", str(column(row, "sent1", path, number)), label=label, choices=choices)


TASKS = (
    Task(
        name="swag",
        shape="choice",
        labels=tuple(CLASSES),
        metrics=("accuracy", "loss"),
        read=reader(questions, partial(parts, leave_out=("*_full*",), labelled_test=False)),
        source="SWAG: train.csv, val.csv (the test set's labels are not published, so val is the test set)",
    ),
)
