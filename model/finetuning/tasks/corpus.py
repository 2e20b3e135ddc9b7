"""Read polarity, stars and the user's own labels from a corpus folder (beam_jobs.corpus_job).

The corpus's dev and test splits are those of the tasks. A task trains on the labels of both other
splits: the texts that an encoder is pre-trained on may teach with their labels too. The corpus may
hold hundreds of millions of reviews: rows are chosen by a hash of their review id a batch at a
time, and only the chosen ones become examples.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
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

COLUMNS = ("review_id", "split", "sentences")
LABEL = "label:"
"""What the name of a task of the user's own labels begins with; the name of the column follows."""
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
    return read_reviews(data, split, sampling, left_out, "stars", POLARITY)


def read_stars(
    data: Path, split: Split, sampling: Sampling, left_out: Counter[str]
) -> list[Example]:
    return read_reviews(data, split, sampling, left_out, "stars", STARS)


def make_label_task(name: str, data: Path | None, labels: Sequence[str] | None = None) -> Task:
    """Return the task `label:COLUMN`; its classes are `labels`, or else those that the corpus's
    corpus.json names.
    """
    column = name.removeprefix(LABEL)
    if not labels:
        labels = read_classes(data or Path(), column)
    classes = {label: number for number, label in enumerate(labels)}
    return Task(
        name=name,
        shape="classification",
        labels=tuple(labels),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=partial(read_reviews, column=f"label.{column}", classes=classes),
        source=f"the corpus's own reviews: column {column}",
        question=f"which {column} does a review have?",
    )


def read_classes(data: Path, column: str) -> list[str]:
    """Return the classes of a label column that a corpus found to be frequent enough."""
    try:
        found = json.loads((data / "corpus.json").read_text()).get("labels", {})
    except (OSError, ValueError):
        raise UserError(
            f"{data}: no corpus.json; --data must be a folder made by beam_jobs.corpus_job"
        ) from None
    if column not in found:
        known = ", ".join(found) or "none"
        raise UserError(
            f"{data}: a corpus without the label {column}; it has {known}; make it again with "
            f"--label {column}"
        )
    if not found[column]["classes"]:
        raise UserError(
            f"{data}: {column} has {found[column]['found']:,} values with enough reviews to train "
            "on; a task needs 2 to 200"
        )
    return list(found[column]["classes"])


def read_reviews(
    data: Path,
    split: Split,
    sampling: Sampling,
    left_out: Counter[str],
    column: str,
    classes: Mapping[Any, int],
) -> list[Example]:
    """Return the sample of the reviews whose value in a column is one of the classes.

    Keep the `n` rows of the smallest hashes of each class while streaming, then sample them.
    """
    batches: Iterable[pa.RecordBatch] = _stream_batches(data, split, column, classes)
    if sampling.n is not None:
        kept: list[pa.RecordBatch] = []
        for batch in batches:
            kept.append(batch)
            if sum(b.num_rows for b in kept) > 4 * len(classes) * sampling.n + 100_000:
                kept = [_select_smallest(kept, sampling, column)]
        batches = [_select_smallest(kept, sampling, column)] if kept else []
    rows = (row for batch in batches for row in batch.to_pylist())
    return sample_examples(
        (_make_example(row, classes[row[column]]) for row in rows),
        Sampling(sampling.n, sampling.seed, sampling.balanced),
    )


def _stream_batches(
    data: Path, split: Split, column: str, classes: Mapping[Any, int]
) -> Iterator[pa.RecordBatch]:
    files = sorted(data.glob("corpus-*.parquet"))
    if not files:
        raise UserError(
            f"{data}: no corpus-*.parquet; --data must be a folder made by beam_jobs.corpus_job"
        )
    import pyarrow.dataset as ds  # and with it pandas: 0.4 CPU seconds, only where it is needed

    dataset = ds.dataset([str(f) for f in files], format="parquet")
    columns = list(dict.fromkeys([*COLUMNS, column]))
    missing = sorted(set(columns) - set(dataset.schema.names))
    if missing:
        raise UserError(
            f"{files[0]}: columns {', '.join(missing)} are missing; not a corpus of this version"
        )
    is_of_split = pc.field("split").cast(pa.string()).isin(CORPUS_SPLITS[split])
    value = pc.field(column)
    value = value.cast(pa.string()) if isinstance(next(iter(classes)), str) else value
    chosen = is_of_split & value.isin(list(classes))
    yield from (b for b in dataset.to_batches(columns=columns, filter=chosen) if b.num_rows)


def _select_smallest(
    batches: list[pa.RecordBatch], sampling: Sampling, column: str
) -> pa.RecordBatch:
    """Return the rows that can be in the sample: the `n` smallest hashes, overall or of each value
    in a column.
    """
    table = pa.Table.from_batches(batches)
    keys = _hash_review_ids(table.column("review_id"), sampling.seed)
    values = np.array(table.column(column).to_pylist())
    assert sampling.n is not None
    chosen = np.zeros(len(keys), dtype=bool)
    groups = (
        [values == value for value in np.unique(values)]
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


def _make_example(row: dict[str, Any], label: int) -> Example:
    return Example(row["review_id"].hex(), " ".join(row["sentences"]), label=label)


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
