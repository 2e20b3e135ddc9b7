"""Read polarity and stars from a corpus folder (beam_jobs.corpus_job).

The corpus's dev and test splits are those of the tasks. A task trains on the labels of both other
splits: the texts that an encoder is pre-trained on may teach with their labels too. The corpus may
hold hundreds of millions of reviews: rows are chosen by a hash of their review id a batch at a
time, and only the chosen ones become examples.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.core.errors import UserError
from model.finetuning.examples import (
    Example,
    Sampling,
    Split,
    Task,
    make_polarity_task,
    sample_examples,
)

COLUMNS = ("review_id", "stars", "verified", "source", "split", "sentences")
POLARITY = {1: 0, 2: 0, 4: 1, 5: 1}
STARS = {stars: stars - 1 for stars in range(1, 6)}
CORPUS_SPLITS: Mapping[Split, tuple[str, ...]] = {
    "train": ("pretrain", "train"),
    "dev": ("dev",),
    "test": ("test",),
}
"""Splits of the corpus that give the examples of each split of a task."""


def read_polarity(
    data: Path, split: Split, sampling: Sampling, left_out: Counter[str]
) -> list[Example]:
    """Return the sample: 1–2 stars are negative, 4–5 positive, all others left out."""
    return _read_reviews(data, split, sampling, POLARITY)


def read_stars(
    data: Path, split: Split, sampling: Sampling, left_out: Counter[str]
) -> list[Example]:
    return _read_reviews(data, split, sampling, STARS)


def _read_reviews(
    data: Path, split: Split, sampling: Sampling, classes: dict[int, int]
) -> list[Example]:
    """Keep the `n` rows of the smallest hashes of each class while streaming, then sample them."""
    kept: list[pa.RecordBatch] = []
    for batch in _stream_batches(data, split, classes):
        kept.append(batch)
        if (
            sampling.n is not None
            and sum(b.num_rows for b in kept) > 4 * len(classes) * sampling.n + 100_000
        ):
            kept = [_select_smallest(kept, sampling)]
    if sampling.n is not None and kept:
        kept = [_select_smallest(kept, sampling)]
    rows = (row for batch in kept for row in batch.to_pylist())
    return sample_examples(
        (_make_example(row, classes) for row in rows),
        Sampling(sampling.n, sampling.seed, sampling.balanced),
    )


def _stream_batches(data: Path, split: Split, classes: dict[int, int]) -> Iterator[pa.RecordBatch]:
    files = sorted(data.glob("corpus-*.parquet"))
    if not files:
        raise UserError(
            f"{data}: no corpus-*.parquet; --data must be a folder made by beam_jobs.corpus_job"
        )
    import pyarrow.dataset as ds  # and with it pandas: 0.4 CPU seconds, only where it is needed

    dataset = ds.dataset([str(f) for f in files], format="parquet")
    missing = sorted(set(COLUMNS) - set(dataset.schema.names))
    if missing:
        raise UserError(
            f"{files[0]}: columns {', '.join(missing)} are missing; not a corpus of this version"
        )
    is_of_split = pc.field("split").cast(pa.string()).isin(CORPUS_SPLITS[split])
    chosen = is_of_split & pc.field("stars").isin(list(classes))
    yield from (b for b in dataset.to_batches(columns=list(COLUMNS), filter=chosen) if b.num_rows)


def _select_smallest(batches: list[pa.RecordBatch], sampling: Sampling) -> pa.RecordBatch:
    """Return the rows that can be in the sample: the `n` smallest hashes, overall or by stars."""
    table = pa.Table.from_batches(batches)
    keys = _hash_review_ids(table.column("review_id"), sampling.seed)
    stars = table.column("stars").to_numpy()
    assert sampling.n is not None
    chosen = np.zeros(len(keys), dtype=bool)
    groups = (
        [stars == s for s in np.unique(stars)]
        if sampling.balanced
        else [np.ones(len(keys), dtype=bool)]
    )
    for group in groups:
        places = np.flatnonzero(group)
        chosen[places[np.argsort(keys[places], kind="stable")[: sampling.n]]] = True
    return pa.Table.combine_chunks(table.filter(pa.array(chosen))).to_batches()[0]


def _hash_review_ids(review_ids: pa.ChunkedArray, seed: int) -> np.ndarray:
    """Return `hash_example_id` for a whole column, uint64 [rows]."""
    ids = (f"{seed}:{review_id.hex()}".encode() for review_id in review_ids.to_pylist())
    digests = b"".join(hashlib.blake2b(i, digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def _make_example(row: dict[str, Any], classes: dict[int, int]) -> Example:
    text = " ".join(row["sentences"])
    slices: dict[str, str | float] = {
        "stars": str(row["stars"]),
        "source": str(row["source"]),
        "words": len(text.split()),
    }
    if row["verified"] is not None:
        slices["verified"] = "verified" if row["verified"] else "not verified"
    return Example(id=row["review_id"].hex(), text=text, label=classes[row["stars"]], slices=slices)


TASKS = (
    make_polarity_task(
        name="polarity",
        read=read_polarity,
        source="the corpus's own reviews: 1–2 against 4–5 stars",
        question="is a review negative (1–2 stars) or positive (4–5)?",
    ),
    Task(
        name="stars",
        shape="classification",
        labels=("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=read_stars,
        source="the corpus's own reviews: 1 to 5 stars",
        question="how many stars, 1 to 5, did the writer give?",
    ),
)
