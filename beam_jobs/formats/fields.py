"""How the fields of every published format become the fields of a Review.

Review     2014, 2018      2023               Customer Reviews   fastText     SNAP key/value     others, by name
---------  --------------  -----------------  -----------------  -----------  -----------------  ----------------
text       reviewText      text               review_body        after ": "   review/text        Text, review, …
title      summary         title              review_headline    up to ": "   review/summary     Summary, …
stars      overall         rating             star_rating        label        review/score       Score, stars, …
item_id    asin            asin               product_id         –            product/productId  ProductId, …
user_id    reviewerID      user_id            customer_id        –            review/userId      UserId, …
timestamp  unixReviewTime  timestamp (ms)     review_date        –            review/time        Time, date, …
verified   verified        verified_purchase  verified_purchase  –            –                  verified, …

The last column is `NAMES` below; the first name of a list that a file has is taken. Everything else (votes, images,
style, names of reviewers) is not read. `--columns text=NAME,stars=NAME,…` overrides the names for any format. Stars
are 1 to 5 or null: "5.0", 5, 5.0 and "5.0 out of 5 stars" are 5; fractions, NaN and whatever lies outside are null,
counted as `stars_unknown`, and the review stays. fastText's labels 1 to 5 are stars where a 3, 4 or 5 is among those at
the beginning of the file. Where there are but 1 and 2, as in Kaggle's file, they know only the polarity: label 1 stands
for 1 and 2 stars, label 2 for 4 and 5; they become 2 and 4, right for polarity and a guess for the number of stars, so
they are counted as `stars_from_polarity`. A column named `label` is not taken: in most files it counts classes from 0.
README.md beside this file is the same table for readers, with the drop reasons.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from beam_jobs.command import UserMistake

NAMES: dict[str, tuple[str, ...]] = {
    "text": (
        *("reviewText", "review_body", "review/text", "text", "Text", "verified_reviews", "review_text", "reviewtext"),
        *("review", "body", "content", "comment", "Review", "reviews.text"),
    ),
    "title": ("summary", "review_headline", "review/summary", "title", "Summary", "headline", "reviews.title"),
    "stars": ("overall", "star_rating", "review/score", "rating", "Score", "stars", "score", "reviews.rating"),
    "item_id": ("asin", "product_id", "product/productId", "ProductId", "item_id", "parent_asin", "item"),
    "user_id": ("reviewerID", "customer_id", "review/userId", "user_id", "UserId", "user"),
    "timestamp": ("unixReviewTime", "review_date", "review/time", "timestamp", "Time", "date", "reviewTime"),
    "verified": ("verified", "verified_purchase"),
}
FIELDS = tuple(NAMES)

STARS_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:out of 5(?: stars?)?|stars?)?\s*", re.IGNORECASE)
ABSENT: Any = object()  # a key that no record has: the columns of a file may have any name, "" too
LONGEST_STARS = 40  # characters; what is longer is no number of stars, and not worth remembering
TRUE, FALSE = {"y", "yes", "true", "1", "t"}, {"n", "no", "false", "0", "f"}


class Review(NamedTuple):
    text: Any
    title: Any
    stars: int | None
    item_id: Any
    user_id: Any
    timestamp: Any
    verified: bool | None


def resolve(columns: Iterable[str], overrides: dict[str, str], file: str) -> dict[str, str]:
    """Which column of a file gives which field; the text must be among them."""
    columns = set(columns)
    if missing := [name for name in overrides.values() if name not in columns]:
        raise UserMistake(f"{file}: --columns names {', '.join(missing)}; the file has {', '.join(sorted(columns))}")
    found = {field: next((name for name in NAMES[field] if name in columns), "") for field in FIELDS} | overrides
    found = {field: name for field, name in found.items() if name}
    if "text" not in found:
        raise UserMistake(
            f"{file}: no column is known to hold the text of a review (there are {', '.join(sorted(columns))}); "
            "name it with --columns text=NAME"
        )
    return found


def parse_overrides(text: str | None) -> dict[str, str]:
    """`text=body,stars=score` → {"text": "body", "stars": "score"}"""
    if not text:
        return {}
    pairs = [part.partition("=") for part in text.split(",")]
    if wrong := [key for key, equals, name in pairs if key not in FIELDS or not equals or not name]:
        raise UserMistake(f"--columns {','.join(wrong)}: write FIELD=NAME,…; the fields are {', '.join(FIELDS)}")
    return {key: name for key, _, name in pairs}


def reader_of(mapping: dict[str, str]) -> Callable[[dict[str, Any]], Review]:
    """A function from a record to a Review."""
    text, title, stars, item, user, time, verified = (mapping.get(field, ABSENT) for field in FIELDS)

    def read(record: dict[str, Any]) -> Review:
        get = record.get
        given = get(stars)
        usual = type(given) is float or (type(given) in (int, str) and len(str(given)) < LONGEST_STARS)
        number = to_stars(given) if usual else None
        return Review(get(text), get(title), number, get(item), get(user), get(time), to_verified(get(verified)))

    return read


@lru_cache(1024, typed=True)  # True is not 1
def to_stars(value: Any) -> int | None:
    if isinstance(value, str):
        match = STARS_TEXT.fullmatch(value)
        value = float(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return int(value) if 1 <= value <= 5 and value == int(value) else None


def to_verified(value: Any) -> bool | None:
    if isinstance(value, bool) or value is None:
        return value
    word = str(value).strip().lower()
    return True if word in TRUE else False if word in FALSE else None
