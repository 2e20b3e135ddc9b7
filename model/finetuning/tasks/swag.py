"""Read SWAG (Zellers et al. 2018), which of four endings follows: train.csv, val.csv."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.files import find_class, get_column, read_table_rows
from amazon_electra.model.finetuning.splits import SplitReader, plan_splits

ENDINGS = 4
CLASSES = {str(i): i for i in range(ENDINGS)}


def read_swag_questions(path: Path) -> Iterator[Example]:
    """Yield the shared beginning `sent1` with four choices, each `sent2` with an ending."""
    for number, row in read_table_rows(path):
        begun = str(get_column(row, "sent2", path, number))
        choices = tuple(
            f"{begun} {get_column(row, f'ending{i}', path, number)}" for i in range(ENDINGS)
        )
        label = find_class(get_column(row, "label", path, number), CLASSES, path, number)
        yield Example(
            f"{path.name}:{number}",
            str(get_column(row, "sent1", path, number)),
            label=label,
            choices=choices,
        )


TASKS = (
    Task(
        name="swag",
        shape="choice",
        labels=tuple(CLASSES),
        metrics=("accuracy", "loss"),
        read=SplitReader(
            read_swag_questions, partial(plan_splits, leave_out=("*_full*",), labelled_test=False)
        ),
        source="SWAG: train.csv, val.csv (the test set's labels are not published, so val is the "
        "test set)",
    ),
)
