"""Writes the data of docs/results.md from the public files in a folder.

    python tests/bench/evidence.py --data ../shared/data --output evidence

`fresh.jsonl` has the reviews of the 2014 release (Cell Phones and Accessories). The recipes were
chosen on a merged dump that has these texts too, split by a hash of the text: those that fell into
its dev or test split are left out.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.deduplication.exact import hash_text
from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.splits import DEFAULT_SHARES, SPLITS, assign_splits, parse_shares


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the public files")
    parser.add_argument("--output", type=Path, required=True, help="folder that is written")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_fresh_reviews(arguments.data, arguments.output)
