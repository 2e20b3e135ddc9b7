"""Tiny corpus folders as corpus_job writes them, for tests of what reads them."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("review_id", pa.binary(16)),
        ("text_hash", pa.binary(16)),
        ("stars", pa.int8()),
        ("source", pa.string()),
        ("split", pa.string()),
        ("has_title", pa.bool_()),
        ("sentences", pa.list_(pa.string())),
    ]
)


def write_corpus(
    folder: Path,
    reviews: Sequence[list[str]],
    files: int = 1,
    split: str = "pretrain",
    has_title: bool = False,
) -> Path:
    """One review is a list of sentences; reviews are dealt to the files in runs, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(files):
        rows = [
            row(sentences, split) | {"has_title": has_title}
            for sentences in reviews[i * len(reviews) // files : (i + 1) * len(reviews) // files]
        ]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        pq.write_table(table, folder / f"corpus-{i:05}.parquet", compression="zstd")
    counts = {"read": len(reviews), "kept": len(reviews), "splits": {split: len(reviews)}}
    (folder / "corpus.json").write_text(json.dumps({**counts, "dropped": {}}))
    return folder


def row(sentences: list[str], split: str) -> dict:
    digest = hashlib.sha256(" ".join(sentences).encode("utf-8", "surrogatepass")).digest()
    return {
        "review_id": digest[16:],
        "text_hash": digest[:16],
        "stars": 5,
        "source": "test",
        "split": split,
        "has_title": False,
        "sentences": sentences,
    }
