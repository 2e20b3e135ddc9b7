"""Read IMDb (Maas et al. 2011): a table with `text` and `label` 0/1, or aclImdb folders."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from amazon_electra.model.finetuning.examples import Example, Split, make_polarity_task
from amazon_electra.model.finetuning.files import (
    clean_html_breaks,
    find_class,
    get_column,
    read_table_rows,
)
from amazon_electra.model.finetuning.splits import DEV_SHARE, SplitReader, SplitSource, plan_splits

CLASSES = {"0": 0, "1": 1, "neg": 0, "pos": 1}


def plan_imdb_splits(data: Path) -> Mapping[Split, SplitSource]:
    """Plan the original folders, dev cut from train; or files with the splits in their names."""
    if not (data / "train" / "pos").is_dir():
        return plan_splits(data)
    train, test = SplitSource((data / "train",), DEV_SHARE), SplitSource((data / "test",))
    return {"train": train, "dev": train, "test": test}


def read_imdb_reviews(path: Path) -> Iterator[Example]:
    """Yield the reviews of {neg,pos}/<number>_<rating>.txt, or of the rows of a table."""
    if path.is_dir():
        for label in ("neg", "pos"):
            for file in sorted((path / label).glob("*.txt")):
                text = clean_html_breaks(file.read_text(encoding="utf-8", errors="replace"))
                name = f"{path.name}/{label}/{file.stem}"
                yield Example(name, text, label=CLASSES[label])
        return
    for number, row in read_table_rows(path):
        text = clean_html_breaks(str(get_column(row, "text", path, number)))
        index = find_class(get_column(row, "label", path, number), CLASSES, path, number)
        yield Example(f"{path.name}:{number}", text, label=index)


TASKS = (
    make_polarity_task(
        name="imdb",
        read=SplitReader(read_imdb_reviews, plan_imdb_splits),
        source="Maas et al. 2011: aclImdb folders, or train/test JSON lines with text and label",
        question="is a film review negative or positive (reviews from another domain)?",
    ),
)
