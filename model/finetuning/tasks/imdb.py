"""IMDb (Maas et al. 2011): JSON lines or a table with `text` and `label` 0/1, or the original aclImdb folders."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from model.finetuning.examples import Example, Split, Task
from model.finetuning.tasks.files import class_of, column, table_rows, whole
from model.finetuning.tasks.splits import DEV_SHARE, Part, parts, reader

CLASSES = {"0": 0, "1": 1, "neg": 0, "pos": 1}


def split_parts(data: Path) -> Mapping[Split, Part]:
    """The original folders, dev cut from train; or files with the splits in their names."""
    if not (data / "train" / "pos").is_dir():
        return parts(data)
    train, test = Part((data / "train",), DEV_SHARE), Part((data / "test",))
    return {"train": train, "dev": train, "test": test}


def reviews(path: Path) -> Iterator[Example]:
    yield from _folder(path) if path.is_dir() else _rows(path)


def _rows(path: Path) -> Iterator[Example]:
    for number, row in table_rows(path):
        text = whole(str(column(row, "text", path, number)))
        label = class_of(column(row, "label", path, number), CLASSES, path, number)
        yield Example(f"{path.name}:{number}", text, label=label, slices={"words": len(text.split())})


def _folder(path: Path) -> Iterator[Example]:
    """{neg,pos}/<number>_<rating>.txt"""
    for label in ("neg", "pos"):
        for file in sorted((path / label).glob("*.txt")):
            text = whole(file.read_text(encoding="utf-8", errors="replace"))
            name = f"{path.name}/{label}/{file.stem}"
            yield Example(name, text, label=CLASSES[label], slices={"words": len(text.split())})


TASKS = (
    Task(
        name="imdb",
        shape="classification",
        labels=("negative", "positive"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=reader(reviews, split_parts),
        source="Maas et al. 2011: aclImdb folders, or train/test JSON lines with text and label",
        question="is a film review negative or positive (reviews from another domain)?",
    ),
)
