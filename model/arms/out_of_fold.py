"""Predictions for examples that a model did not learn from: what everything is chosen by, and
`out_of_fold.parquet` in a fitted folder.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.core.errors import UserError
from beam_jobs.core.files import atomic_path
from model.evaluation.predictions import compute_log_softmax
from model.finetuning.examples import Example

FILE = "out_of_fold.parquet"
FOLDS = 5
COLUMNS = ("id", "label", "fold", "logits")


@dataclass(frozen=True)
class OutOfFold:
    """Predictions of the training examples, each by a model that was fitted without it; or those of
    dev, which no model learns from.
    """

    ids: list[str]
    labels: np.ndarray
    """Classes, int64 [n]."""
    logits: np.ndarray
    """Float32 [n, classes]."""
    folds: np.ndarray
    """Number of the fold of each, int64 [n]."""

    def __len__(self) -> int:
        return len(self.ids)

    def compute_loss(self) -> float:
        """Return the mean log-loss."""
        rows = np.arange(len(self))
        return -float(np.mean(compute_log_softmax(self.logits)[rows, self.labels]))

    def take_ids(self, ids: Sequence[str]) -> "OutOfFold":
        """Return the predictions of these examples, in this order."""
        place = {one: i for i, one in enumerate(self.ids)}
        rows = [place[one] for one in ids]
        return OutOfFold(list(ids), self.labels[rows], self.logits[rows], self.folds[rows])

    def save(self, folder: Path) -> None:
        table = pa.table(
            {
                "id": self.ids,
                "label": self.labels,
                "fold": self.folds,
                "logits": pa.FixedSizeListArray.from_arrays(
                    pa.array(self.logits.ravel(), pa.float32()), self.logits.shape[1]
                ),
            }
        )
        with atomic_path(folder / FILE) as partial:
            pq.write_table(table, partial, compression="zstd")

    @classmethod
    def load(cls, folder: Path) -> "OutOfFold":
        """Return what `save` wrote; UserError where it is missing or damaged."""
        try:
            table = pq.read_table(folder / FILE, columns=list(COLUMNS))
            logits = table["logits"].combine_chunks().flatten().to_numpy()
            return cls(
                table["id"].to_pylist(),
                table["label"].to_numpy(),
                logits.reshape(len(table), -1),
                table["fold"].to_numpy(),
            )
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise UserError(
                f"{folder / FILE}: no predictions of a fit ({str(error).splitlines()[0]}); fit the "
                "arm again with model.finetune"
            ) from error


def assign_folds(labels: np.ndarray, folds: int = FOLDS) -> np.ndarray:
    """Return the fold of each example from 0, int64 [n], the same for all arms: every fold has its
    share of each class. Fewer than `folds` examples have a fold each.
    """
    from sklearn.model_selection import StratifiedKFold  # 1 CPU second

    folds = min(folds, len(labels))
    numbers = np.arange(len(labels)) % max(folds, 1)
    if folds < 2 or np.unique(labels, return_counts=True)[1].max() < folds:
        return numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer examples than folds
        for number, (_, held_out) in enumerate(StratifiedKFold(folds).split(labels, labels)):
            numbers[held_out] = number
    return numbers


def list_labels(examples: Sequence[Example]) -> np.ndarray:
    """Return the classes of examples, int64 [n]."""
    return np.fromiter((example.label for example in examples), np.int64, len(examples))
