"""Writes the data of docs/results.md from the public files in a folder.

    python tests/bench/evidence.py --data ../shared/data --output evidence

`fresh.jsonl` has the reviews of the 2014 release (Cell Phones and Accessories). The recipes were
chosen on a merged dump that has these texts too, split by a hash of the text: those that fell into
its dev or test split are left out. `aspects/{train,dev,test}.csv` has answers from the reviews of
SubjQA and the aspect each is about (service, room, taste, …), a task that stars do not give.
"""

import argparse
import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.deduplication.exact import hash_text
from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.splits import DEFAULT_SHARES, SPLITS, assign_splits, parse_shares
from amazon_electra.model.finetuning.examples import Split, assign_split

ASPECTS = 12
"""The most frequent ones are classes."""
SAME = {"flavor": "taste"}
SHARES: dict[Split, int] = {"train": 50, "dev": 15, "test": 35}
"""Percent of the products."""


def read_json_records(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of JSON lines, or of an array that may be cut off."""
    data = file.read_bytes()
    text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            record, end = decoder.raw_decode(text, start)
        except ValueError:
            return
        yield record
        start = text.find("{", end)


def write_fresh_reviews(data: Path, output: Path) -> None:
    bounds, counts = parse_shares(DEFAULT_SHARES), Counter[str]()
    with (output / "fresh.jsonl").open("w") as file:
        for source in sorted((data / "reviews/mcauley_2014").iterdir()):
            for record in read_json_records(source):
                text = clean_text(record["reviewText"])
                side = SPLITS[int(assign_splits(hash_text(text), bounds, 0)[0])]
                counts[side] += 1
                if side in ("pretrain", "train"):
                    file.write(json.dumps(record) + "\n")
    seen = counts["dev"] + counts["test"]
    print(f"fresh.jsonl: {counts.total() - seen} reviews; {seen} left out")


def read_answers(file: Path) -> Iterator[tuple[Split, str, str]]:
    """Yield side, answer and aspect of each row of SubjQA that has an answer. Its own splits have
    different aspects, so sides are by product.
    """
    with gzip.open(file, "rt", newline="") as rows:
        for row in csv.DictReader(rows):
            if row["human_ans_spans"] != "ANSWERNOTFOUND":
                aspect = row["query_asp"].strip()
                answer = " ".join(row["human_ans_spans"].split())
                yield assign_split(row["item_id"], SHARES), answer, SAME.get(aspect, aspect)


def write_aspects(data: Path, output: Path) -> None:
    folder = output / "aspects"
    folder.mkdir(exist_ok=True)
    files = sorted((data / "tasks/subjqa").glob("*/*.csv.gz"))
    rows = sorted({row for file in files for row in read_answers(file)})
    most = dict(Counter(aspect for *_, aspect in rows).most_common(ASPECTS))
    for side in SHARES:
        kept = [row[1:] for row in rows if row[0] == side and row[2] in most]
        with (folder / f"{side}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "aspect"), *kept])
        print(f"aspects/{side}.csv: {len(kept)} answers")
    print(", ".join(f"{aspect} {n}" for aspect, n in most.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the public files")
    parser.add_argument("--output", type=Path, required=True, help="folder that is written")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_fresh_reviews(arguments.data, arguments.output)
    write_aspects(arguments.data, arguments.output)
