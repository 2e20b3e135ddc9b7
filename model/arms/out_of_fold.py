"""Predictions of examples that a model did not learn from, and out_of_fold.parquet."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core.errors import refuse
from amazon_electra.beam_jobs.core.files import atomic_path
from amazon_electra.beam_jobs.model_folder.copies import fold_text
from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature
from amazon_electra.model.evaluation.predictions import (
    Predictions,
    compute_log_loss,
    compute_log_softmax,
)
from amazon_electra.model.finetuning.examples import Example

FILE = "out_of_fold.parquet"
FOLDS = 5
COLUMNS = ("id", "label", "fold", "logits")


@dataclass(frozen=True)
class OutOfFold:
    """Predictions of examples by models fitted without them: folds, or a split of its own."""

    ids: list[str]
    labels: np.ndarray
    """Classes, int64 [n]; of a multi-label task 0 or 1 [n, classes]."""
    logits: np.ndarray
    """Float32 [n, classes]."""
    folds: np.ndarray
    """Number of the fold of each, int64 [n]."""

    def __len__(self) -> int:
        return len(self.ids)

    def compute_loss(self) -> float:
        """Return the mean log-loss."""
        return compute_log_loss(self.logits, self.labels)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Softmax of the logits, of a multi-label task sigmoid of each, float64 [n, classes]."""
        if self.labels.ndim == 2:
            return apply_temperature(self.logits, 1.0, is_multilabel=True)
        return np.exp(compute_log_softmax(self.logits))

    @classmethod
    def of_predictions(cls, predictions: Predictions, temperature: float) -> Self:
        """Return predictions with logits that are divided by the temperature."""
        logits = predictions.logits / temperature
        none = np.zeros(len(predictions), np.int64)
        return cls(predictions.ids, np.asarray(predictions.labels, np.int64), logits, none)

    def divide(self, temperature: float) -> "OutOfFold":
        """Return the same with logits that are divided by the temperature."""
        return replace(self, logits=self.logits / np.float32(temperature))

    def join(self, other: "OutOfFold | None") -> "OutOfFold":
        """Return the predictions of both; of an example that both have, this one's."""
        if other is None:
            return self
        known = {*self.ids}
        new = [place for place, one in enumerate(other.ids) if one not in known]
        return OutOfFold(
            [*self.ids, *(other.ids[place] for place in new)],
            np.concatenate([self.labels, other.labels[new]]),
            np.concatenate([self.logits, other.logits[new]]),
            np.concatenate([self.folds, other.folds[new]]),
        )

    def take_ids(self, ids: Sequence[str]) -> "OutOfFold":
        """Return the predictions of these examples, in this order."""
        place = {one: i for i, one in enumerate(self.ids)}
        rows = [place[one] for one in ids]
        return OutOfFold(list(ids), self.labels[rows], self.logits[rows], self.folds[rows])

    def save(self, folder: Path) -> None:
        labels = self.labels if self.labels.ndim == 1 else list(self.labels)
        flat = pa.array(self.logits.ravel(), pa.float32())
        logits = pa.FixedSizeListArray.from_arrays(flat, self.logits.shape[1])
        with atomic_path(folder / FILE) as partial:
            table = pa.table([self.ids, labels, self.folds, logits], names=[*COLUMNS])
            pq.write_table(table, partial, compression="zstd")

    @classmethod
    def load(cls, folder: Path) -> "OutOfFold":
        """Return what `save` wrote; UserError where it is missing or damaged."""
        why = f"{folder / FILE}: no predictions of a fit ({{}}); fit the arm again"
        with refuse(OSError, KeyError, ValueError, pa.ArrowException, message=why):
            table = pq.read_table(folder / FILE, columns=list(COLUMNS))
            logits = table["logits"].combine_chunks().flatten().to_numpy()
            labels = np.array(table["label"].to_pylist(), np.int64)
            logits = logits.reshape(len(table), -1)
        return cls(table["id"].to_pylist(), labels, logits, table["fold"].to_numpy())


def predict_by_folds(
    examples: Sequence[Example],
    fit: Callable[[Sequence[Example], int], Callable[[Sequence[Example]], np.ndarray]],
) -> OutOfFold:
    """Return the predictions of each example by a model that learnt from the other folds alone.
    `fit` takes examples and the number of the fold that is not among them, and returns what gives
    logits [n, classes] of others.
    """
    labels = list_labels(examples)
    folds = assign_folds(labels, group_examples(examples))
    order, logits = np.argsort(folds, kind="stable"), list[np.ndarray]()
    for fold in np.unique(folds).tolist():
        predict = fit([e for e, own in zip(examples, folds, strict=True) if own != fold], fold)
        held_out = [e for e, own in zip(examples, folds, strict=True) if own == fold]
        logits.append(np.asarray(predict(held_out), np.float32))
    every = np.concatenate(logits)[np.argsort(order)]
    return OutOfFold([e.id for e in examples], labels, every, folds)


def group_examples(examples: Sequence[Example]) -> np.ndarray:
    """Return the group of each example, int64 [n]: examples of one text (case and spaces aside) or
    of one product share a group. Products count where none has more than a fold's share of the
    examples.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, products = len(examples), [example.product for example in examples]
    texts = [hash(fold_text(f"{example.text} {example.pair or ''}")) for example in examples]
    keys: list[Sequence[int | str]] = [texts]
    if max(Counter(filter(None, products)).values(), default=0) * FOLDS <= n:
        keys.append(products)
    rows, links = [], []
    for column in keys:
        first: dict[int | str, int] = {}
        for i, key in enumerate(column):
            if key:
                rows.append(i)
                links.append(first.setdefault(key, i))
    graph = coo_array((np.ones(len(rows), np.int8), (rows, links)), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def assign_folds(labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return each example's fold, int64 [n], for all arms: groups whole, classes spread evenly."""
    classes, own = np.unique(labels, axis=0, return_inverse=True)
    own = own.ravel()
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    folds, share = np.full(len(labels), -1, np.int64), 1 / np.bincount(own)
    counts = np.zeros((FOLDS, len(classes)))
    members, starts = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes
    largest = np.argsort(-sizes, kind="stable")
    for g in largest[: np.count_nonzero(sizes > 1)]:
        rows = members[starts[g] : starts[g] + sizes[g]]
        of_group = np.bincount(own[rows], minlength=len(classes))
        fold = int(np.argmin(counts @ (of_group * share)))
        folds[rows], counts[fold] = fold, counts[fold] + of_group
    for c in range(len(classes)):  # the others even out the folds, each class from another one on
        rows = np.flatnonzero((own == c) & (folds < 0))
        levels = np.roll(counts[:, c], -c)[:, None] + np.arange(len(rows))
        dealt = np.argsort(levels, axis=None, kind="stable")[: len(rows)]
        folds[rows] = (dealt // max(1, len(rows)) + c) % FOLDS
    return folds


def list_labels(examples: Sequence[Example]) -> np.ndarray:
    """Return the classes of examples, int64 [n]; of a multi-label task 0 or 1 [n, classes]."""
    if examples and examples[0].label is None:
        return np.array([example.tags for example in examples], np.int64)
    return np.fromiter((example.label for example in examples), np.int64, len(examples))
