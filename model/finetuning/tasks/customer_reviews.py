"""Read Amazon Customer Reviews (amazon_us_reviews on the hub): 15 columns, TSV or CSV."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from model.finetuning.examples import Example, Omission, Task, make_polarity_task
from model.finetuning.files import clean_html_breaks, get_column, is_short, read_table_rows
from model.finetuning.splits import SplitReader, plan_cut_splits
from model.finetuning.tasks.corpus import POLARITY, STARS


def make_us_reader(classes: Mapping[int, int]) -> Callable[[Path], Iterator[Example | Omission]]:
    """Return a reader of the reviews whose stars are among the classes.

    It leaves out and counts reviews without text or without 1 to 5 stars.
    """

    def read(path: Path) -> Iterator[Example | Omission]:
        for number, row in read_table_rows(path):
            if is_short(row, ("star_rating", "review_body")):
                yield Omission("line too short")
                continue
            stars = parse_stars(get_column(row, "star_rating", path, number))
            text = clean_html_breaks(str(get_column(row, "review_body", path, number)))
            if stars is None or not text:
                yield Omission("no text" if stars else "stars are none of 1 to 5")
                continue
            if stars not in classes:
                continue
            slices: dict[str, str | float] = {"stars": str(stars), "words": len(text.split())}
            for name, title in (
                ("product_category", "category"),
                ("verified_purchase", "verified"),
            ):
                if row.get(name):
                    slices[title] = str(row[name])
            name = str(row.get("review_id") or f"{path.name}:{number}")
            yield Example(name, text, label=classes[stars], slices=slices)

    return read


def parse_stars(written: object) -> int | None:
    """Return 1 to 5, however written (pandas makes 5.0 of a column with a gap); else None."""
    try:
        number = float(str(written))
    except ValueError:
        return None
    return int(number) if number in STARS else None


TASKS = (
    make_polarity_task(
        name="us-reviews-polarity",
        read=SplitReader(make_us_reader(POLARITY), plan_cut_splits),
        source="Amazon Customer Reviews, TSV or CSV with star_rating and review_body",
        question="is a review negative (1–2 stars) or positive (4–5)?",
    ),
    Task(
        name="us-reviews-stars",
        shape="classification",
        labels=tuple(f"{stars} stars" for stars in STARS),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=SplitReader(make_us_reader(STARS), plan_cut_splits),
        source="Amazon Customer Reviews, TSV or CSV with star_rating and review_body",
        question="how many stars, 1 to 5, did the writer give?",
    ),
)
