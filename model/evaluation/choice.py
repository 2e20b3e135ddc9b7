"""Chooses between arms by the log-loss of calibrated predictions of examples none learnt from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, TypeVar

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from amazon_electra.beam_jobs.model_folder.probabilities import MIN_PROBABILITY, take_logarithms
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.evaluation.predict import (
    choose_thresholds,
    predict_classes,
    predict_sets,
)
from amazon_electra.model.evaluation.predictions import Predictions, compute_losses
from amazon_electra.model.finetuning.examples import Example

TEMPERATURES = (0.2, 10.0)
"""Between which the best one is looked for: a dev set without a mistake would take none at all."""


class Chosen(Protocol):
    """A fitted folder that others are compared with."""

    @property
    def arm(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def held_out(self) -> OutOfFold: ...


C = TypeVar("C", bound=Chosen)


def rank_arms(cells: Sequence[C]) -> list[C]:
    """Return the best seed of each arm, smallest mean log-loss first, each calibrated, on the
    held-out examples all arms have; arms that answer one class come last.
    """
    losses: dict[str, list[tuple[bool, float, C]]] = {}
    shared = {
        seed: set.intersection(*(set(c.held_out.ids) for c in cells if c.seed == seed))
        for seed in {cell.seed for cell in cells}
    }
    for cell in cells:
        held_out = cell.held_out
        ids = [one for one in held_out.ids if one in shared[cell.seed]]
        ranked = rank_predictions(held_out.take_ids(ids) if ids else held_out)
        losses.setdefault(cell.arm, []).append((*ranked, cell))
    arms = sorted(
        losses.values(),
        key=lambda own: (all(one for one, *_ in own), float(np.mean([loss for _, loss, _ in own]))),
    )
    return [min(own, key=lambda one: one[:2])[2] for own in arms]


def rank_predictions(held_out: OutOfFold) -> tuple[bool, float]:
    """Return a key, smaller for better ones: whether all answers are equal, calibrated loss."""
    predictions = make_held_out_predictions(held_out)
    loss = float(apply_calibration(predictions, fit_calibration(predictions)).loss.mean())
    return len({str(one) for one in predictions.predictions}) == 1, loss


def make_held_out_predictions(held_out: OutOfFold) -> Predictions:
    """Return the predictions of held-out examples, of several classes by the best thresholds."""
    logits, labels = held_out.logits, held_out.labels
    if labels.ndim == 2:
        examples = [Example(one, "") for one in held_out.ids]
        return predict_sets(logits, labels, examples, choose_thresholds(logits, labels))
    pairs = zip(held_out.ids, labels, strict=True)
    return predict_classes(list(logits), [Example(one, "", label=int(c)) for one, c in pairs])


@dataclass(frozen=True)
class Calibration:
    """Logits are divided by the temperature, and the biases are added."""

    temperature: float
    biases: np.ndarray
    """Float64 [classes]: what undoes class weights, whose probabilities have other shares."""

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """Return calibrated logits [n, classes]."""
        return logits / self.temperature + self.biases


def fit_calibration(held_out: Predictions) -> Calibration:
    """Return the calibration of the smallest log-loss; a normal prior holds biases near 0."""
    logits, labels, n = held_out.logits, held_out.gold_array, len(held_out)
    right = labels if held_out.is_multilabel else np.eye(logits.shape[1])[labels]

    def compute_loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        factor, biases = np.exp(-x[0]), x[1:]
        losses, probabilities = compute_losses(factor * logits + biases, labels)
        slope = (probabilities - right) / n
        loss = losses.mean() + biases @ biases / (2 * n)
        steps = [-(slope * factor * logits).sum(), *(slope.sum(0) + biases / n)]
        return float(loss), np.array(steps)

    bounds = [tuple(np.log(TEMPERATURES)), *[(None, None)] * logits.shape[1]]
    found = minimize(
        compute_loss, np.zeros(1 + logits.shape[1]), jac=True, bounds=bounds, method="L-BFGS-B"
    )
    return Calibration(float(np.exp(found.x[0])), found.x[1:])


def apply_calibration(predictions: Predictions, calibration: Calibration) -> Predictions:
    """Return the predictions with calibrated probabilities and losses; classes do not change."""
    logits = calibration.apply(predictions.logits)
    losses, probabilities = compute_losses(logits, predictions.gold_array)
    return replace(predictions, probabilities=probabilities.astype(np.float32), loss=losses)


def fit_temperature(dev: Predictions) -> float:
    """Return the temperature with the smallest cross-entropy on dev (Guo et al. 2017)."""

    def compute_loss(log_temperature: float) -> float:
        losses, _ = compute_losses(dev.logits / np.exp(log_temperature), dev.gold_array)
        return float(np.minimum(losses, -np.log(MIN_PROBABILITY)).mean())

    found = minimize_scalar(compute_loss, bounds=np.log(TEMPERATURES), method="bounded")
    return round(float(np.exp(found.x)), 4)


def average_arms(arms: Sequence[tuple[OutOfFold, Predictions | None]]) -> OutOfFold:
    """Return the mean of the calibrated probabilities of arms, of held-out examples and of test."""
    calibrated = []
    for held_out, test in arms:
        found = fit_calibration(make_held_out_predictions(held_out))
        every = held_out.join(OutOfFold.of_predictions(test, 1.0) if test else None)
        calibrated.append(replace(every, logits=found.apply(every.logits)))
    joined = reduce(OutOfFold.join, calibrated)
    place = {one: i for i, one in enumerate(joined.ids)}
    total, counts = np.zeros(joined.logits.shape), np.zeros((len(joined), 1))
    for one in calibrated:
        rows = [place[i] for i in one.ids]
        total[rows] += one.probabilities
        counts[rows] += 1
    return replace(joined, logits=take_logarithms(total / counts))
