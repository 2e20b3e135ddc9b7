"""Runs a network over examples: logits → predictions, probabilities and losses, for each shape of task."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from model.device import Device
from model.evaluation import entities, spans
from model.evaluation.predictions import Predictions
from model.finetuning.batches import Encoder, Feature
from model.finetuning.examples import Example, Task
from model.finetuning.loop import outputs


def predict(
    model: nn.Module, encoder: Encoder, examples: Sequence[Example], device: Device, task: Task, threshold: float = 0.0
) -> Predictions:
    return judge(model, encoder(examples), examples, device, task, threshold)


def judge(
    model: nn.Module,
    features: Sequence[Feature],
    examples: Sequence[Example],
    device: Device,
    task: Task,
    threshold: float = 0.0,
) -> Predictions:
    """As `predict`, on features made before (dev is predicted many times)."""
    logits = outputs(model, features, task.shape, device)
    if task.shape == "span":
        said = spans.answers(logits, features, examples, threshold, task.always_answered)
    elif task.shape == "tokens":
        said = entities.tags(logits, features, examples, task.labels)
    elif task.shape == "regression":
        said = _numbers(logits, examples)
    else:
        said = _classes(logits, examples)
    return replace(said, slices=slices_of(examples))


def _classes(logits: list[np.ndarray], examples: Sequence[Example]) -> Predictions:
    """Examples without a published label get loss NaN."""
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


def _numbers(logits: list[np.ndarray], examples: Sequence[Example]) -> Predictions:
    numbers = np.array([float(row[0]) for row in logits])
    labels = np.array([np.nan if e.label is None else float(e.label) for e in examples])
    return Predictions(
        ids=[e.id for e in examples],
        labels=labels.tolist(),
        predictions=numbers.tolist(),
        loss=(numbers - labels) ** 2,
    )


def slices_of(examples: Sequence[Example]) -> dict[str, list[str | float | None]]:
    names = dict.fromkeys(name for example in examples for name in example.slices)
    return {name: [example.slices.get(name) for example in examples] for name in names}
