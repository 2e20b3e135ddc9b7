"""A shop's own CSV, made of the real reviews in a folder: 5,000 rows with German column names, a
scale of 1 to 10, dates, titles, its own order numbers, and a tenth of the rows in Spanish.

    python tests/bench/shop.py --reviews ../shared/data/reviews --output shop.csv
    amazon-electra run --dump shop.csv
    python tests/bench/shop.py --reviews ../shared/data/reviews --output shop.csv --corpus CORPUS

With `--corpus`, the corpus folder of the run, it prints what twenty lines of scikit-learn make of
the same labels: the accuracy and macro-F1 that the run's best arm has to reach.
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


def fit_baseline(corpus: Path) -> dict[str, float]:
    """Return what TF-IDF and logistic regression reach on test with the labels of the corpus."""
    import pyarrow.parquet as pq
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    table = pq.read_table(sorted(corpus.glob("corpus-*.parquet"))).to_pandas()
    table = table[table.stars.isin([1, 2, 4, 5])]
    texts, labels = table.sentences.map(" ".join), table.stars > 3
    is_train, is_test = table.split.isin(["train", "pretrain"]), table.split == "test"
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    features = vectorizer.fit_transform(texts[is_train])
    model = LogisticRegression(C=10, max_iter=1000).fit(features, labels[is_train])
    found = model.predict(vectorizer.transform(texts[is_test]))
    truth = labels[is_test]
    return {
        "labels": int(is_train.sum()),
        "test": int(is_test.sum()),
        "accuracy": float((found == truth).mean()),
        "macro_f1": float(f1_score(truth, found, average="macro")),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviews", type=Path, required=True, help="folder of real reviews")
    parser.add_argument("--output", type=Path, required=True, help="CSV that is written")
    parser.add_argument("--corpus", type=Path, help="corpus folder of a run on that CSV")
    arguments = parser.parse_args()
    write_shop(arguments.reviews, arguments.output)
    if arguments.corpus:
        print(json.dumps(fit_baseline(arguments.corpus)))
