"""Amazon Customer Reviews (amazon_us_reviews on the hub): 15 columns, TSV as released or CSV; no published split."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from model.finetuning.examples import Example, LeftOut, Task
from model.finetuning.tasks.corpus import POLARITY, STARS
from model.finetuning.tasks.files import column, is_short, table_rows, whole
from model.finetuning.tasks.splits import reader, undivided


def reviews(classes: Mapping[int, int]) -> Callable[[Path], Iterator[Example | LeftOut]]:
    """Reviews whose stars are among the classes; what has not 1 to 5 of them, or no text, is left out and counted."""

    def read(path: Path) -> Iterator[Example | LeftOut]:
        for number, row in table_rows(path):
            if is_short(row, ("star_rating", "review_body")):
                yield LeftOut("line too short")
                continue
            stars = stars_of(column(row, "star_rating", path, number))
            text = whole(str(column(row, "review_body", path, number)))
            if stars is None or not text:
                yield LeftOut("no text" if stars else "stars are none of 1 to 5")
                continue
            if stars not in classes:
                continue
            slices: dict[str, str | float] = {"stars": str(stars), "words": len(text.split())}
            for name, title in (("product_category", "category"), ("verified_purchase", "verified")):
                if row.get(name):
                    slices[title] = str(row[name])
            name = str(row.get("review_id") or f"{path.name}:{number}")
            yield Example(name, text, label=classes[stars], slices=slices)

    return read


def stars_of(written: object) -> int | None:
    """1 to 5, however they are written (pandas makes 5.0 of a column with a gap)."""
    try:
        number = float(str(written))
    except ValueError:
        return None
    return int(number) if number in STARS else None


TASKS = (
    Task(
        name="us-reviews-polarity",
        shape="classification",
        labels=("negative", "positive"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=reader(reviews(POLARITY), undivided),
        source="Amazon Customer Reviews, TSV or CSV with star_rating and review_body",
        question="is a review negative (1–2 stars) or positive (4–5)?",
    ),
    Task(
        name="us-reviews-stars",
        shape="classification",
        labels=tuple(f"{stars} stars" for stars in STARS),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=reader(reviews(STARS), undivided),
        source="Amazon Customer Reviews, TSV or CSV with star_rating and review_body",
        question="how many stars, 1 to 5, did the writer give?",
    ),
)
