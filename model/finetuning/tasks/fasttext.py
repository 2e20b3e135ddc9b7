"""Amazon sentiment as on Kaggle (amazonreviews): fastText lines `__label__1 Title: text`, 1 negative, 2 positive."""

from collections.abc import Iterator
from pathlib import Path

from model.command import UserMistake
from model.finetuning.examples import Example, Task
from model.finetuning.tasks.files import class_of, open_text
from model.finetuning.tasks.splits import reader

CLASSES = {"__label__1": 0, "__label__2": 1}


def lines(path: Path) -> Iterator[Example]:
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            label, space, text = line.strip().partition(" ")
            if not line.strip():
                continue
            if not space:
                raise UserMistake(f"{path}, line {number}: expected `__label__N text`, found {line.strip()[:60]!r}")
            words = len(text.split())
            name = f"{path.name}:{number}"
            yield Example(name, text, label=class_of(label, CLASSES, path, number), slices={"words": words})


TASKS = (
    Task(
        name="amazon-sentiment",
        shape="classification",
        labels=("negative", "positive"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=reader(lines),
        source="Kaggle bittlingmayer/amazonreviews: train.ft.txt and test.ft.txt, plain, gz or bz2",
        question="is a review negative (1–2 stars) or positive (4–5), title included?",
    ),
)
