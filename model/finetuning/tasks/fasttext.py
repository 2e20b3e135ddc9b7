"""Read Kaggle's amazonreviews: fastText lines `__label__1 Title: text`, 2 is positive."""

from collections.abc import Iterator
from pathlib import Path

from amazon_electra.model.finetuning.examples import CLASS_METRICS, Example, Task
from amazon_electra.model.finetuning.files import Row, open_text
from amazon_electra.model.finetuning.splits import SplitReader

LABELS = {"__label__1": 0, "__label__2": 1}


def read_fasttext(path: Path) -> Iterator[Example]:
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            label, space, text = line.strip().partition(" ")
            if not label:
                continue
            row = Row({"label": label}, path, number)
            if not space:
                row.refuse(f"not `__label__N text`: {label[:60]!r}")
            index = row.find_class("label", LABELS)
            yield Example(f"{path.name}:{number}", text, label=index)


TASKS = (
    Task(
        name="amazon-sentiment",
        shape="classification",
        labels=("negative", "positive"),
        metrics=CLASS_METRICS,
        read=SplitReader(read_fasttext),
        source="Kaggle bittlingmayer/amazonreviews: train.ft.txt and test.ft.txt, plain, gz or bz2",
        question="is a review negative (1–2 stars) or positive (4–5), title included?",
    ),
)
