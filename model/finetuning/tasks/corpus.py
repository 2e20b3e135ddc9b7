"""Read the tasks of a corpus folder, which train on its splits pretrain and train."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.nesting import load_json
from amazon_electra.beam_jobs.labels.values import split_classes
from amazon_electra.model.finetuning.examples import (
    CLASS_METRICS,
    SET_METRICS,
    STEP_METRICS,
    Example,
    Sampler,
    Sampling,
    Split,
    Task,
)
from amazon_electra.model.recipes import read_yaml

COLUMNS = ("review_id", "split", "sentences")
RECORD = ("file", "row", "id")
"""Columns that say which record of the dump a review was."""
SLICED = ("split", "month", "has_title")
"""Columns by which answers are sliced beside these, where a corpus has them."""
TRAINED = ("pretrain", "train")
HASH = re.compile("[0-9a-f]{32}")
"""A review's id in examples."""
LABEL = "label:"
"""Prefix of the name of a task of the user's own labels, before that of the column."""
BATCH_ROWS = 8_192
"""Reviews that are read at once."""
PHRASES: Mapping[str, Mapping[str, Sequence[str]]] = read_yaml("phrases")
"""Task → class → phrases."""
POLARITY = {1: 0, 2: 0, 4: 1, 5: 1}
STARS = {stars: stars - 1 for stars in range(1, 6)}
CORPUS_SPLITS: Mapping[Split, tuple[str, ...]] = {
    "train": TRAINED,
    "dev": ("dev",),
    "test": ("test",),
}
"""Splits of the corpus that give the examples of each split of a task."""
SPLITS_WITHOUT_DEV: Mapping[Split, tuple[str, ...]] = {
    "train": TRAINED,
    "dev": (),
    "test": ("dev", "test"),
}
"""The same where everything is chosen by cross-validation (FinetuningSettings.selection). Near
copies of dev and test are withheld from both others, so that test has no other reviews."""


def make_star_task(
    name: str, labels: Sequence[str], stars: Mapping[int, int], question: str
) -> Task:
    """Return a task of the corpus's stars; `stars` has the class of each number, other stars are
    left out: make_star_task("satisfied", ("no", "so so", "yes"), {1: 0, 2: 0, 3: 1, 4: 2, 5: 2},
    "…?")
    """
    by_class = [[n for n, c in stars.items() if c == number] for number in range(len(labels))]
    named = " against ".join("–".join(map(str, {n[0]: 0, n[-1]: 0})) for n in by_class)
    if all(len(numbers) == 1 for numbers in by_class):
        named = f"{by_class[0][0]} to {by_class[-1][0]}"
    has_steps = len(labels) > 2 and by_class == sorted(by_class)
    own = PHRASES.get(name, {})
    return Task(
        name=name,
        shape="classification",
        labels=tuple(labels),
        metrics=STEP_METRICS if has_steps else CLASS_METRICS,
        read=partial(read_reviews, column="stars", classes=stars),
        source=f"the corpus's own reviews: {named} stars",
        question=question,
        stars=stars,
        phrases=tuple(tuple(own[label]) for label in labels) if own else (),
    )


def make_label_task(name: str, data: Path | None, labels: Sequence[str] | None = None) -> Task:
    """Return the task `label:COLUMN`; its classes are `labels`, or those in corpus.json."""
    column = name.removeprefix(LABEL)
    found = {} if labels and not data else read_label(data or Path(), column)
    labels = labels or found["classes"]
    classes = {label: number for number, label in enumerate(labels)}
    several = "texts" in found
    steps = STEP_METRICS if found.get("is_ordered") else CLASS_METRICS
    return Task(
        name=name,
        shape="multilabel" if several else "classification",
        labels=tuple(labels),
        metrics=SET_METRICS if several else steps,
        read=partial(read_reviews, column=f"label.{column}", classes=classes, several=several),
        source=f"the corpus's own reviews: column {column}",
        question=f"which {column} does a review have?",
        phrases=tuple((label,) for label in labels),
    )


def read_label(data: Path, column: str) -> dict[str, Any]:
    """Return what corpus.json says of a label column that has enough reviews (choose_classes)."""
    why = "no corpus.json there, as corpus_job writes it"
    with refuse(OSError, ValueError, message=why, field="data", value=data):
        found = load_json((data / "corpus.json").read_text(encoding="utf-8")).get("labels", {})
    has_classes, known = found.get(column, {}).get("classes"), ", ".join(found) or "none"
    require(has_classes, f"no label {column} with 2 to 200 classes; it has {known}", "data", data)
    return dict(found[column])


def read_reviews(
    data: Path,
    split: Split,
    sampling: Sampling,
    left_out: Counter[str],
    column: str,
    classes: Mapping[Any, int],
    several: bool = False,
) -> Sequence[Example]:
    """Return the sample of the reviews whose value is one of the classes, or several of them."""
    sampler = Sampler(sampling)
    splits = (CORPUS_SPLITS if sampling.has_dev else SPLITS_WITHOUT_DEV)[split]
    for batch in _stream_batches(data, splits, column, () if several else classes):
        ids = [review_id.hex() for review_id in batch.column("review_id").to_pylist()]
        values = batch.column(column).to_pylist()
        labels: list[int | None] = [None if several else classes[value] for value in values]
        chosen = [i for i, one in enumerate(ids) if sampler.wants(one, labels[i])]
        read = [name for name in ("sentences", "product") if name in batch.schema.names]
        rows = batch.select(read).take(pa.array(chosen, pa.int64())).to_pylist()
        for i, row in zip(chosen, rows, strict=True):
            own = set(split_classes(values[i])) if several else set()
            tags = tuple(int(name in own) for name in classes) if several else ()
            text, product = " ".join(row["sentences"]), str(row.get("product") or "")
            sampler.add(Example(ids[i], text, label=labels[i], tags=tags, product=product))
    return sampler.finish()


def read_texts(data: Path, n: int) -> Sequence[Example]:
    """Return a sample of the reviews to train on, with labels or without."""
    sampler = Sampler(Sampling(n))
    for batch in _stream_batches(data, TRAINED, "review_id", ()):
        for row in batch.to_pylist():
            if sampler.wants(one := row["review_id"].hex(), None):
                sampler.add(Example(one, " ".join(row["sentences"])))
    return sampler.finish()


def list_titles(data: Path, n: int) -> list[str]:
    """Return the most frequent titles of a corpus that occur more than once."""
    found: Counter[str] = Counter()
    for path in sorted(data.glob("corpus-*.parquet")):
        with pq.ParquetFile(path) as parquet:
            if "has_title" in parquet.schema_arrow.names:
                for batch in parquet.iter_batches(BATCH_ROWS, columns=["sentences", "has_title"]):
                    rows = batch.to_pylist()
                    found.update(row["sentences"][0] for row in rows if row["has_title"])
    return [title for title, times in found.most_common(n) if times > 1]


def locate_reviews(data: Path, ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return file, row, own id, title and text of each example's record, and what is sliced by."""
    files = sorted(data.glob("corpus-*.parquet")) if data.is_dir() else []
    columns = ["review_id", *RECORD, "sentences"]
    found: dict[str, dict[str, Any]] = {}
    wanted = pa.array([bytes.fromhex(one) for one in ids if HASH.fullmatch(one)], pa.binary(16))
    for path in files if len(wanted) else ():
        with pq.ParquetFile(path) as parquet:
            names = parquet.schema_arrow.names
            if not {*columns} <= {*names}:
                continue
            known = [one for one in SLICED if one in names]
            for batch in parquet.iter_batches(BATCH_ROWS, columns=[*columns, *known]):
                chosen = batch.filter(pc.is_in(batch.column("review_id"), wanted))
                for row in chosen.to_pylist():
                    sentences = row.pop("sentences")
                    row["title"] = sentences[0] if row.pop("has_title", False) else ""
                    row["text"] = " ".join(sentences)
                    found[row.pop("review_id").hex()] = row
    return found


def _stream_batches(
    data: Path, splits: Sequence[str], column: str, classes: Collection[Any]
) -> Iterator[pa.RecordBatch]:
    files = sorted(data.glob("corpus-*.parquet"))
    require(files, "no corpus-*.parquet there, as corpus_job writes it", "data", data)
    import pyarrow.dataset as ds  # and with it pandas: 0.4 CPU seconds, only where it is needed

    dataset = ds.dataset([str(f) for f in files], format="parquet")
    columns = list(dict.fromkeys([*COLUMNS, column]))
    missing = sorted(set(columns) - set(dataset.schema.names))
    columns += {"product"}.intersection(dataset.schema.names)
    require(not missing, f"{files[0]}: no columns {', '.join(missing)}; make the corpus again")
    is_of_split = pc.field("split").cast(pa.string()).isin(list(splits))
    value = pc.field(column)
    if isinstance(next(iter(classes), None), str):
        value = value.cast(pa.string())
    chosen = is_of_split & (value.isin(list(classes)) if classes else value.is_valid())
    ahead = {"batch_readahead": 2, "fragment_readahead": 1}
    yield from dataset.to_batches(columns, filter=chosen, batch_size=BATCH_ROWS, **ahead)


TASKS = (
    make_star_task(
        "polarity",
        ("negative", "positive"),
        POLARITY,
        "is a review negative (1–2 stars) or positive (4–5)?",
    ),
    make_star_task(
        "stars",
        ("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
        STARS,
        "how many stars, 1 to 5, did the writer give?",
    ),
)
