"""A network's predictions of a split, and their Parquet file, from which all is computed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import atomic_path
from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature, take_logarithms


@dataclass(frozen=True)
class Predictions:
    ids: list[str]
    labels: list[Any]
    """Class index, number, list of tags or of answers; of a multi-label task 1 or 0 a class."""
    predictions: list[Any]
    loss: np.ndarray
    """Float64 [n]."""
    probabilities: np.ndarray | None = None
    """Float32 [n, classes]."""
    n_classes: int = 0
    scores: dict[str, np.ndarray] = field(default_factory=dict)
    """Numbers of each example that metrics are made of: exact, f1, right, predicted, labelled."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def predicted_classes(self) -> np.ndarray:
        return np.asarray(self.predictions, dtype=np.int64)

    @property
    def gold_array(self) -> np.ndarray:
        return np.asarray(self.labels)

    @property
    def predicted_numbers(self) -> np.ndarray:
        return np.asarray(self.predictions, dtype=np.float64)

    @property
    def is_multilabel(self) -> bool:
        return self.probabilities is not None and self.gold_array.ndim == 2

    @property
    def logits(self) -> np.ndarray:
        """Numbers whose softmax, or sigmoid, are the probabilities, float64 [n, classes]."""
        assert self.probabilities is not None
        return take_logarithms(self.probabilities, self.is_multilabel)

    def take_rows(self, rows: Sequence[int] | np.ndarray) -> "Predictions":
        """Return the predictions of the examples `rows`, in the order of `rows`."""
        rows = np.asarray(rows)
        return replace(
            self,
            ids=[self.ids[i] for i in rows],
            labels=[self.labels[i] for i in rows],
            predictions=[self.predictions[i] for i in rows],
            loss=self.loss[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
            scores={name: values[rows] for name, values in self.scores.items()},
        )


def compute_log_softmax(scores: np.ndarray) -> np.ndarray:
    """Return the logarithms of the softmax of each row, float64 [n, classes]."""
    shifted = scores.astype(np.float64) - scores.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def compute_losses(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log-losses, float64 [n], and probabilities: softmax, or sigmoid for 0/1 labels."""
    if labels.ndim == 2:
        scores = scores.astype(np.float64)
        losses = (np.logaddexp(0, scores) - labels * scores).sum(1)
        return losses, apply_temperature(scores, 1.0, is_multilabel=True)
    logarithms = compute_log_softmax(scores)
    return -logarithms[np.arange(len(labels)), labels], np.exp(logarithms)


def compute_log_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of `compute_losses`."""
    return float(np.mean(compute_losses(scores, labels)[0]))


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write a row per example; labels and predictions that are lists or strings as JSON."""
    columns: dict[str, Any] = {"example_id": predictions.ids}
    for name, values in (("label", predictions.labels), ("prediction", predictions.predictions)):
        is_text = bool(values) and isinstance(values[0], list | str)
        columns[name] = [json.dumps(v, ensure_ascii=False) for v in values] if is_text else values
    if predictions.probabilities is not None:
        columns["probabilities"] = list(predictions.probabilities)
    columns["loss"] = predictions.loss
    columns |= {f"score_{name}": values for name, values in predictions.scores.items()}
    metadata = {"amazon_electra": json.dumps({"n_classes": predictions.n_classes})}
    with atomic_path(path) as temporary:
        table = pa.table(columns).replace_schema_metadata(metadata)
        pq.write_table(table, temporary, compression="zstd")


def read_predictions(path: Path) -> Predictions:
    """Read the file that `write_predictions` wrote. UserError where it does not exist."""
    require(path.exists(), f"{path}: no such file, which model.evaluate writes")
    table = pq.read_table(path)
    columns = {name: table.column(name) for name in table.column_names}

    def decode(column: pa.ChunkedArray) -> list[Any]:
        values = column.to_pylist()
        return [*map(json.loads, values)] if pa.types.is_string(column.type) else values

    found = columns.get("probabilities")
    scores = [name for name in columns if name.startswith("score_")]
    return Predictions(
        ids=columns["example_id"].to_pylist(),
        labels=decode(columns["label"]),
        predictions=decode(columns["prediction"]),
        loss=columns["loss"].to_numpy(),
        probabilities=None if found is None else np.array(found.to_pylist(), dtype=np.float32),
        n_classes=json.loads(table.schema.metadata[b"amazon_electra"])["n_classes"],
        scores={name.removeprefix("score_"): columns[name].to_numpy() for name in scores},
    )
