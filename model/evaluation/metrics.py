"""Metrics as functions of sums over examples, so that one matrix product gives a metric on every bootstrap sample.

A metric turns predictions into columns of statistics, one row per example, and sums of those rows into its value.
Accuracy sums one column; macro-F1 three per class; a correlation five. Values equal those of scikit-learn, scipy,
seqeval and the official SQuAD script (tests/model/test_metrics.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from model.evaluation.predictions import Predictions

BINS = 15
"""Of the expected calibration error (Guo et al. 2017, arXiv 1706.04599)."""


Columns = Callable[[Predictions], np.ndarray]
"""Predictions of n examples → statistics float64 [n, k]."""
Value = Callable[[np.ndarray], np.ndarray]
"""Sums of statistics [..., k] → values [...]."""


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    better: Literal["higher", "lower"]
    columns: Columns
    value: Value

    bounds: tuple[float, float] = (0.0, 1.0)

    def of(self, predictions: Predictions) -> float:
        return float(self.value(self.columns(predictions).sum(0)))


def _mean(column: Columns) -> tuple[Columns, Value]:
    """Statistics and value of a plain mean over examples."""

    def columns(predictions: Predictions) -> np.ndarray:
        values = np.asarray(column(predictions), dtype=np.float64)
        return np.stack([values, np.ones_like(values)], axis=1)

    return columns, lambda sums: _ratio(sums[..., 0], sums[..., 1])


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """0 where there is nothing to divide by."""
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below != 0)


def _correct(predictions: Predictions) -> np.ndarray:
    return predictions.classes() == predictions.golds()


def _class_counts(predictions: Predictions) -> np.ndarray:
    """Per class: right, predicted, labelled [n, 3 · classes]."""
    classes = np.arange(predictions.n_classes)
    predicted = predictions.classes()[:, None] == classes
    labelled = predictions.golds()[:, None] == classes
    return np.concatenate([predicted & labelled, predicted, labelled], axis=1).astype(np.float64)


def _f1s(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F1 of each class, and whether the class occurs at all, [..., classes]."""
    right, predicted, labelled = np.split(sums, 3, axis=-1)
    return _ratio(2 * right, predicted + labelled), predicted + labelled > 0


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    f1, occurs = _f1s(sums)
    return _ratio((f1 * occurs).sum(-1), occurs.sum(-1))


def _binary_f1(sums: np.ndarray) -> np.ndarray:
    """F1 of class 1, as GLUE measures MRPC and QQP."""
    return _f1s(sums)[0][..., 1]


def _matthews(sums: np.ndarray) -> np.ndarray:
    """Multi-class Matthews correlation (Gorodkin 2004) from the class counts."""
    right, predicted, labelled = np.split(sums, 3, axis=-1)
    n = labelled.sum(-1)
    covariance = right.sum(-1) * n - (predicted * labelled).sum(-1)
    spread = (n**2 - (predicted**2).sum(-1)) * (n**2 - (labelled**2).sum(-1))
    return _ratio(covariance, np.sqrt(np.maximum(spread, 0.0)))


def _calibration(predictions: Predictions) -> np.ndarray:
    """Per bin of confidence: confidence minus correctness, and one column of ones [n, BINS + 1].

    A confidence that is no number makes the error none.
    """
    assert predictions.probabilities is not None
    confidence = predictions.probabilities.max(1)
    bins = np.minimum((np.nan_to_num(confidence) * BINS).astype(int), BINS - 1)
    columns = np.zeros((len(confidence), BINS + 1))
    columns[np.arange(len(confidence)), bins] = confidence - _correct(predictions)
    columns[:, BINS] = 1.0
    return columns


def _ece(sums: np.ndarray) -> np.ndarray:
    return _ratio(np.abs(sums[..., :BINS]).sum(-1), sums[..., BINS])


def _moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    x, y = x - x.mean(), y - y.mean()
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _pearson(sums: np.ndarray) -> np.ndarray:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * xx - x**2, 0) * np.maximum(n * yy - y**2, 0)
    return _ratio(n * xy - x * y, np.sqrt(spread))


def _ranked(predictions: Predictions) -> np.ndarray:
    """Ranks are taken once, over all examples; the bootstrap resamples examples with their ranks."""
    from scipy.stats import rankdata

    return _moments(rankdata(predictions.numbers()), rankdata(predictions.golds()))


def _entities(predictions: Predictions) -> np.ndarray:
    """Entities right, predicted and labelled of each sentence [n, 3]."""
    return np.stack([predictions.scores[name] for name in ("right", "predicted", "labelled")], axis=1)


def _entity_f1(sums: np.ndarray) -> np.ndarray:
    return _ratio(2 * sums[..., 0], sums[..., 1] + sums[..., 2])


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", "higher", *_mean(_correct)),
        Metric("macro_f1", "macro-F1", "higher", _class_counts, _macro_f1),
        Metric("f1", "F1", "higher", _class_counts, _binary_f1),
        Metric("matthews", "Matthews correlation", "higher", _class_counts, _matthews, (-1.0, 1.0)),
        Metric("loss", "loss", "lower", *_mean(lambda p: p.loss), (0.0, np.inf)),
        Metric("ece", "calibration error", "lower", _calibration, _ece),
        Metric(
            "pearson",
            "Pearson correlation",
            "higher",
            lambda p: _moments(p.numbers(), p.golds()),
            _pearson,
            (-1.0, 1.0),
        ),
        Metric("spearman", "Spearman correlation", "higher", _ranked, _pearson, (-1.0, 1.0)),
        Metric("mse", "mean squared error", "lower", *_mean(lambda p: (p.numbers() - p.golds()) ** 2), (0.0, np.inf)),
        Metric("exact_match", "exact match", "higher", *_mean(lambda p: p.scores["exact"])),
        Metric("answer_f1", "answer F1", "higher", *_mean(lambda p: p.scores["f1"])),
        Metric("entity_f1", "entity F1", "higher", _entities, _entity_f1),
    )
}


def value(name: str, predictions: Predictions) -> float:
    return METRICS[name].of(predictions)


def confusion(predictions: Predictions) -> list[list[int]]:
    """Rows are labels, columns predictions."""
    counts = np.zeros((predictions.n_classes, predictions.n_classes), dtype=int)
    np.add.at(counts, (predictions.golds(), predictions.classes()), 1)
    return counts.tolist()
