"""Amazon Customer Reviews (amazon_us_reviews on the hub): 15 columns, TSV as released or CSV; no published split."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from model.finetuning.examples import Example, LeftOut, Task
from model.finetuning.tasks.corpus import POLARITY, STARS
from model.finetuning.tasks.files import column, is_short, table_rows, whole
from model.finetuning.tasks.splits import reader, undivided


def reviews(classes: Mapping[int, int]) -> Callable[[Path], Iterator[Example | LeftOut]]:
    """Reviews whose stars are among the classes; rows without a readable number of stars or a text are left out."""

    def read(path: Path) -> Iterator[Example | LeftOut]:
        for number, row in table_rows(path):
            if is_short(row, ("star_rating", "review_body")):
                yield LeftOut("line too short")
                continue
            stars = str(column(row, "star_rating", path, number)).strip()
            text = whole(str(column(row, "review_body", path, number)))
            if not text or not stars.isdigit() or int(stars) not in classes:
                continue
            slices: dict[str, str | float] = {"stars": stars, "words": len(text.split())}
            for name, title in (("product_category", "category"), ("verified_purchase", "verified")):
                if row.get(name):
                    slices[title] = str(row[name])
            name = str(row.get("review_id") or f"{path.name}:{number}")
            yield Example(name, text, label=classes[int(stars)], slices=slices)

    return read


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
