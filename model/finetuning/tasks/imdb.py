"""IMDb (Maas et al. 2011): JSON lines or a table with `text` and `label` 0/1, or the original aclImdb folders."""

from collections.abc import Iterator
from pathlib import Path

from model.finetuning.examples import Example, Sampling, Split, Task, sample, split_by_text
from model.finetuning.tasks.files import DEV_SHARE, class_of, column, reader, table_rows, whole

CLASSES = {"0": 0, "1": 1, "neg": 0, "pos": 1}


def read(data: Path, split: Split, sampling: Sampling) -> list[Example]:
    if (data / "train" / "pos").is_dir():
        return sample(_folders(data, split), sampling)
    return reader(rows)(data, split, sampling)


def rows(path: Path) -> Iterator[Example]:
    for number, row in table_rows(path):
        text = whole(str(column(row, "text", path, number)))
        label = class_of(column(row, "label", path, number), CLASSES, path, number)
        yield Example(f"{path.name}:{number}", text, label=label, slices={"words": len(text.split())})


def _folders(data: Path, split: Split) -> Iterator[Example]:
    """{train,test}/{neg,pos}/<number>_<rating>.txt; dev is cut from train."""
    where = "test" if split == "test" else "train"
    for label in ("neg", "pos"):
        for path in sorted((data / where / label).glob("*.txt")):
            text = whole(path.read_text(encoding="utf-8", errors="replace"))
            if split == "test" or split_by_text(text, DEV_SHARE) == split:
                name = f"{where}/{label}/{path.stem}"
                yield Example(name, text, label=CLASSES[label], slices={"words": len(text.split())})


TASKS = (
    Task(
        name="imdb",
        shape="classification",
        labels=("negative", "positive"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=read,
        source="Maas et al. 2011: aclImdb folders, or train/test JSON lines with text and label",
        question="is a film review negative or positive (reviews from another domain)?",
    ),
)
