"""Writes reviews of a dump as a task of two classes, which every side of a bench reads."""

import gzip
import json
from pathlib import Path

import numpy as np

SPLITS = {"train": 1.0, "dev": 0.1, "test": 1.0}
"""Reviews of each, as shares of the number asked for."""


def write_splits(inputs: list[str], folder: Path, reviews: int) -> np.ndarray:
    """Write train.jsonl, dev.jsonl and test.jsonl, `text` and `label` each, with as many reviews of
    one or two stars as of four or five; return the labels of test.
    """
    by_label: dict[int, list[str]] = {0: [], 1: []}
    for path in inputs:
        for text, stars in read_reviews(path):
            if stars != 3:
                by_label[int(stars > 3)].append(text)
    generator = np.random.default_rng(0)
    for texts in by_label.values():
        generator.shuffle(texts)
    folder.mkdir(parents=True)
    start = 0
    labels = np.empty(0, dtype=int)
    for split, share in SPLITS.items():
        half = max(1, round(reviews * share / 2))
        if start + half > min(len(texts) for texts in by_label.values()):
            raise SystemExit(f"--reviews {reviews}: the dumps have too few of each class")
        chosen = [(text, k) for k in by_label for text in by_label[k][start : start + half]]
        generator.shuffle(chosen)  # type: ignore[arg-type]
        lines = [json.dumps({"text": text, "label": str(k)}) for text, k in chosen]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        labels, start = np.array([k for _, k in chosen]), start + half
    return labels


def read_reviews(path: str) -> list[tuple[str, float]]:
    """Return the texts of a dump that have stars, with them; equal texts once."""
    found: dict[str, float] = {}
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as lines:
        for line in lines:
            try:
                record = json.loads(line)
                text, stars = record["reviewText"].strip(), float(record["overall"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            if text:
                found[text] = stars
    return list(found.items())
