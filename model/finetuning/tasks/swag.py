"""Read SWAG (Zellers et al. 2018), which of four endings follows: train.csv, val.csv."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.files import read_table_rows
from amazon_electra.model.finetuning.splits import SplitReader, plan_splits

ENDINGS = 4
CLASSES = {str(i): i for i in range(ENDINGS)}


def read_swag_questions(path: Path) -> Iterator[Example]:
    """Yield the shared beginning `sent1` with four choices, each `sent2` with an ending."""
    for row in read_table_rows(path):
        begun, ends = row.get("sent2"), [row.get(f"ending{i}") for i in range(ENDINGS)]
        yield Example(
            f"{path.name}:{row.line}",
            str(row.get("sent1")),
            label=row.find_class("label", CLASSES),
            choices=tuple(f"{begun} {end}" for end in ends),
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
