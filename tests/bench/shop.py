"""A shop's own CSV, made of the real reviews in a folder: 5,000 rows with German column names, a
scale of 1 to 10, dates, titles, its own order numbers, and a tenth of the rows in Spanish.

    python tests/bench/shop.py --reviews ../shared/data/reviews --output shop.csv
    amazon-electra run --dump shop.csv
"""

import argparse
import csv
import gzip
import io
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROWS, SPANISH = 5_000, 500
COLUMNS = ("Bestellnummer", "Artikel", "Datum", "Betreff", "Kommentar", "Note")
ENGLISH = ("mcauley_2023/Books.jsonl", "mcauley_2018/Pet_Supplies.json")
"""Files of JSON lines of the 2023 and 2018 releases."""


def read_reviews(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield item, day, title, text and stars of each review."""
    for name in ENGLISH:
        for line in (folder / name).read_text().splitlines():
            r = json.loads(line)
            seconds = r.get("unixReviewTime") or r["timestamp"] // 1000
            yield {
                "item": r["asin"],
                "day": datetime.fromtimestamp(seconds, UTC),
                "title": r.get("summary", r.get("title", "")),
                "text": r.get("reviewText", r.get("text", "")),
                "stars": int(r.get("overall", r.get("rating"))),
            }


def read_spanish(folder: Path) -> Iterator[dict[str, Any]]:
    data = gzip.decompress((folder / "other/spanish_reviews.csv.gz").read_bytes()).decode()
    for r in csv.DictReader(io.StringIO(data)):
        if r["stars"] in "12345":
            day = datetime(2018, 1, 1, tzinfo=UTC)
            yield {
                "item": "",
                "day": day,
                "title": "",
                "text": r["review"],
                "stars": int(r["stars"]),
            }


def write_shop(folder: Path, output: Path) -> None:
    """Write the CSV: ten points are five stars or, as often, nine."""
    draw = random.Random(0)
    rows = [*draw.sample(list(read_reviews(folder)), ROWS - SPANISH)]
    rows += draw.sample(list(read_spanish(folder)), SPANISH)
    draw.shuffle(rows)
    with output.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(COLUMNS)
        for number, row in enumerate(rows):
            points = 2 * row["stars"] - draw.randrange(2)
            day = f"{row['day']:%d.%m.%Y}"
            writer.writerow(
                [f"B{10_000 + number}", row["item"], day, row["title"], row["text"], points]
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviews", type=Path, required=True, help="folder of real reviews")
    parser.add_argument("--output", type=Path, required=True, help="CSV that is written")
    arguments = parser.parse_args()
    write_shop(arguments.reviews, arguments.output)
