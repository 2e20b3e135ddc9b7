"""Runs a network over examples, and turns its logits into predictions for each shape of task."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from model.device import Device
from model.evaluation import entities, spans
from model.evaluation.predictions import Predictions
from model.finetuning.examples import Example, Task
from model.finetuning.features import Feature
from model.finetuning.network import predict_logits


def predict_features(
    model: nn.Module,
    features: Sequence[Feature],
    examples: Sequence[Example],
    device: Device,
    task: Task,
    threshold: float = 0.0,
) -> Predictions:
    """Return the predictions for features made before: dev is predicted many times."""
    logits = predict_logits(model, features, task.shape, device)
    if task.shape == "span":
        predictions = spans.predict_answers(
            logits, features, examples, threshold, task.always_answered
        )
    elif task.shape == "tokens":
        predictions = entities.predict_tags(logits, features, examples, task.labels)
    elif task.shape == "regression":
        predictions = _predict_numbers(logits, examples)
    else:
        predictions = _predict_classes(logits, examples)
    return replace(predictions, slices=collect_slices(examples))


def _predict_classes(logits: list[np.ndarray], examples: Sequence[Example]) -> Predictions:
    """Predict classes from logits [classes] each; without a published label the loss is NaN."""
    scores = np.stack(logits).astype(np.float64)
    scores -= scores.max(1, keepdims=True)
    log_probabilities = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    labels = [-1 if e.label is None else int(e.label) for e in examples]
    loss = -log_probabilities[np.arange(len(labels)), labels]
    loss[np.array(labels) < 0] = np.nan
    return Predictions(
        ids=[e.id for e in examples],
        labels=labels,
        predictions=scores.argmax(1).tolist(),
        loss=loss,
        probabilities=np.exp(log_probabilities).astype(np.float32),
        n_classes=scores.shape[1],
    )


def _predict_numbers(logits: list[np.ndarray], examples: Sequence[Example]) -> Predictions:
    """Predict numbers from logits [1] each; the loss is the squared error."""
    numbers = np.array([float(row[0]) for row in logits])
    labels = np.array([np.nan if e.label is None else float(e.label) for e in examples])
    return Predictions(
        ids=[e.id for e in examples],
        labels=labels.tolist(),
        predictions=numbers.tolist(),
        loss=(numbers - labels) ** 2,
    )


def collect_slices(examples: Sequence[Example]) -> dict[str, list[str | float | None]]:
    """Return every slice's value for each example, None where an example has none."""
    names = dict.fromkeys(name for example in examples for name in example.slices)
    return {name: [example.slices.get(name) for example in examples] for name in names}
