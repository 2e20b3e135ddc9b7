"""Read Kaggle's amazonreviews: fastText lines `__label__1 Title: text`, 2 is positive."""

from collections.abc import Iterator
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.finetuning.examples import CLASS_METRICS, Example, Task
from amazon_electra.model.finetuning.files import find_class, open_text
from amazon_electra.model.finetuning.splits import SplitReader

LABELS = {"__label__1": 0, "__label__2": 1}


def read_fasttext(path: Path) -> Iterator[Example]:
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            label, space, text = line.strip().partition(" ")
            if not line.strip():
                continue
            if not space:
                raise UserError(f"{path}, line {number}: not `__label__N text`: {label[:60]!r}")
            index = find_class(label, LABELS, path, number)
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
