"""Metrics as functions of sums over examples, so that one matrix product gives a metric on every
bootstrap sample. Values equal scikit-learn's, scipy's, seqeval's and the SQuAD script's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from amazon_electra.model.evaluation.predictions import Predictions

BINS = 15
"""Bins of the expected calibration error (Guo et al. 2017, arXiv 1706.04599)."""


Columns = Callable[[Predictions], np.ndarray]
"""Predictions of n examples → statistics float64 [n, k]."""
Value = Callable[[np.ndarray], np.ndarray]
"""Sums of statistics [..., k] → values [...]."""


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    columns: Columns
    value: Value
    better: Literal["higher", "lower"] = "higher"
    bounds: tuple[float, float] = (0.0, 1.0)

    def compute(self, predictions: Predictions) -> float:
        return float(self.value(self.columns(predictions).sum(0)))


def _make_mean(column: Columns) -> tuple[Columns, Value]:
    """Return the columns and the value of a plain mean over examples."""

    def stack_columns(predictions: Predictions) -> np.ndarray:
        values = np.asarray(column(predictions), dtype=np.float64)
        return np.stack([values, np.ones_like(values)], axis=1)

    return stack_columns, lambda sums: _divide(sums[..., 0], sums[..., 1])


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return above / below, and 0 where there is nothing to divide by."""
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below != 0)


def _mark_correct(predictions: Predictions) -> np.ndarray:
    """Return whether each example's class is right, bool [n]; of several all of them."""
    is_right = np.equal(predictions.predicted_classes, predictions.gold_array)
    return is_right if is_right.ndim == 1 else is_right.all(1)


def _count_classes(predictions: Predictions) -> np.ndarray:
    """Return for each class whether an example is right, predicted, labelled [n, 3 · classes]."""
    predicted, labelled = predictions.predicted_classes, predictions.gold_array
    if labelled.ndim == 1:
        classes = np.arange(predictions.n_classes)
        predicted, labelled = predicted[:, None] == classes, labelled[:, None] == classes
    predicted, labelled = predicted.astype(bool), labelled.astype(bool)
    return np.concatenate([predicted & labelled, predicted, labelled], axis=1).astype(np.float64)


def _compute_f1s(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the F1 of each class and whether the class occurs at all, both [..., classes]."""
    right, predicted, labelled = np.split(sums, 3, axis=-1)
    return _divide(2 * right, predicted + labelled), predicted + labelled > 0


def _compute_macro_f1(sums: np.ndarray) -> np.ndarray:
    f1, occurs = _compute_f1s(sums)
    return _divide((f1 * occurs).sum(-1), occurs.sum(-1))


def _compute_micro_f1(sums: np.ndarray) -> np.ndarray:
    """Compute the F1 of all classes, or entities, together."""
    right, predicted, labelled = (one.sum(-1) for one in np.split(sums, 3, axis=-1))
    return _divide(2 * right, predicted + labelled)


def _compute_matthews(sums: np.ndarray) -> np.ndarray:
    """Compute the multi-class Matthews correlation (Gorodkin 2004) from the class counts."""
    right, predicted, labelled = np.split(sums, 3, axis=-1)
    n = labelled.sum(-1)
    covariance = right.sum(-1) * n - (predicted * labelled).sum(-1)
    spread = (n**2 - (predicted**2).sum(-1)) * (n**2 - (labelled**2).sum(-1))
    return _divide(covariance, np.sqrt(np.maximum(spread, 0.0)))


def _compute_moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return 1, x, y, x², y², xy [n, 6], from which kappa and correlations are computed."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _compute_step_moments(predictions: Predictions) -> np.ndarray:
    return _compute_moments(predictions.predicted_classes, predictions.gold_array)


def _compute_kappa(sums: np.ndarray) -> np.ndarray:
    """Compute Cohen's kappa with quadratic weights (Cohen 1968)."""
    n, p, g, pp, gg, pg = np.moveaxis(sums, -1, 0)
    return _divide(2 * (n * pg - p * g), n * (pp + gg) - 2 * p * g)


def _count_steps(predictions: Predictions) -> np.ndarray:
    """Return how many steps each answer is off, [n]."""
    return np.abs(predictions.predicted_classes - predictions.gold_array)


def _bin_calibration_errors(predictions: Predictions) -> np.ndarray:
    """Return confidence minus correctness in the bin of the confidence, and ones [n, BINS + 1]."""
    assert predictions.probabilities is not None
    confidence = predictions.probabilities.max(1)
    bins = np.minimum((np.nan_to_num(confidence) * BINS).astype(int), BINS - 1)
    columns = np.zeros((len(confidence), BINS + 1))
    columns[np.arange(len(confidence)), bins] = confidence - _mark_correct(predictions)
    columns[:, BINS] = 1.0
    return columns


def _compute_ece(sums: np.ndarray) -> np.ndarray:
    return _divide(np.abs(sums[..., :BINS]).sum(-1), sums[..., BINS])


def _compute_pearson(sums: np.ndarray) -> np.ndarray:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * xx - x**2, 0) * np.maximum(n * yy - y**2, 0)
    return _divide(n * xy - x * y, np.sqrt(spread))


def _list_moments(predictions: Predictions) -> np.ndarray:
    x, y = predictions.predicted_numbers, predictions.gold_array
    return _compute_moments(x - x.mean(), y - y.mean())  # centred: sums stay small


def _list_rank_moments(predictions: Predictions) -> np.ndarray:
    """Return the moments of the ranks, which are taken once: the bootstrap resamples them."""
    from scipy.stats import rankdata

    x, y = map(rankdata, (predictions.predicted_numbers, predictions.gold_array))
    return _compute_moments(x - x.mean(), y - y.mean())


def _square_errors(predictions: Predictions) -> np.ndarray:
    return (predictions.predicted_numbers - predictions.gold_array) ** 2


def _count_entities(predictions: Predictions) -> np.ndarray:
    """Return how many entities of each sentence are right, predicted and labelled [n, 3]."""
    return np.stack([predictions.scores[n] for n in ("right", "predicted", "labelled")], axis=1)


SIGNED: tuple[float, float] = (-1.0, 1.0)
LOWER: dict[str, Any] = {"better": "lower", "bounds": (0.0, np.inf)}
_EVERY = (
    Metric("accuracy", "accuracy", *_make_mean(_mark_correct)),
    Metric("macro_f1", "macro-F1", _count_classes, _compute_macro_f1),
    Metric("micro_f1", "micro-F1", _count_classes, _compute_micro_f1),
    Metric("subset_accuracy", "subset accuracy", *_make_mean(_mark_correct)),
    # of class 1, by which GLUE measures MRPC and QQP
    Metric("f1", "F1", _count_classes, lambda sums: _compute_f1s(sums)[0][..., 1]),
    Metric("matthews", "Matthews correlation", _count_classes, _compute_matthews, bounds=SIGNED),
    Metric("mae", "mean absolute error", *_make_mean(_count_steps), **LOWER),
    Metric("within_one", "within one step", *_make_mean(lambda p: _count_steps(p) <= 1)),
    Metric("kappa", "quadratic kappa", _compute_step_moments, _compute_kappa, bounds=SIGNED),
    Metric("loss", "loss", *_make_mean(lambda p: p.loss), **LOWER),
    Metric("ece", "calibration error", _bin_calibration_errors, _compute_ece, better="lower"),
    Metric("pearson", "Pearson correlation", _list_moments, _compute_pearson, bounds=SIGNED),
    Metric("spearman", "Spearman correlation", _list_rank_moments, _compute_pearson, bounds=SIGNED),
    Metric("mse", "mean squared error", *_make_mean(_square_errors), **LOWER),
    Metric("exact_match", "exact match", *_make_mean(lambda p: p.scores["exact"])),
    Metric("answer_f1", "answer F1", *_make_mean(lambda p: p.scores["f1"])),
    Metric("entity_f1", "entity F1", _count_entities, _compute_micro_f1),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _EVERY}


def compute_metric(name: str, predictions: Predictions) -> float:
    return METRICS[name].compute(predictions)


def list_figures(
    predictions: Predictions | Sequence[Predictions], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Return `label`, `n`, `answered`, `recall`, `precision` (None: undefined) of each class."""
    every = [predictions] if isinstance(predictions, Predictions) else predictions
    counts = np.sum([_count_classes(one).sum(0) for one in every], axis=0)
    found = []
    for label, right, answered, n in zip(labels, *np.split(counts, 3), strict=True):
        recall, precision = (float(right / of) if of else None for of in (n, answered))
        shares = {"recall": recall, "precision": precision}
        found.append({"label": label, "n": int(n), "answered": int(answered), **shares})
    return found


def count_confusions(predictions: Predictions) -> list[list[int]]:
    """Count examples by label (rows) and prediction (columns)."""
    counts = np.zeros((predictions.n_classes, predictions.n_classes), dtype=int)
    np.add.at(counts, (predictions.gold_array, predictions.predicted_classes), 1)
    return counts.tolist()


def rank_dev_metrics(dev: Mapping[str, float]) -> tuple[float, float]:
    """Return a key that compares by the first metric, then by the loss; no number is worst."""
    first, loss = (
        number if math.isfinite(number) else -math.inf
        for number in (next(iter(dev.values()), math.nan), -dev.get("loss", 0.0))
    )
    return first, loss
