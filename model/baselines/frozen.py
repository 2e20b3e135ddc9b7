"""Logistic regression on the states of a frozen encoder: the mean over the tokens of each of its
last four layers. The folder has the encoder, and the regression in `model.skops`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from model.baselines.regression import (
    Attempt,
    ScoreDev,
    compute_logits,
    fit_regression,
    load_pipeline,
)
from model.baselines.states import compute_states
from model.device import Device
from model.finetuning.examples import Task
from model.finetuning.features import Feature
from model.finetuning.network import Head, load_encoder, prepare_network

MOST_LABELS = 100_000
"""Labels that a regression learns from at most, the first of the sample: with an encoder of width
384 their states take 0.6 GB, and as much again once standardized."""
STRENGTHS = (0.0001, 0.001, 0.01, 0.1)
"""Values of C that are tried, of standardized states."""


def open_encoder(folder: str, task: Task, head: Head, device: Device) -> nn.Module:
    """Return the encoder of a folder or hub name on the device."""
    encoder = load_encoder(folder, task)
    prepare_network(encoder, head, device, needs_states=True)
    return encoder.eval()


def fit_pipeline(
    states: np.ndarray,
    labels: np.ndarray,
    dev_states: np.ndarray,
    classes: Sequence[str],
    score_dev: ScoreDev,
) -> tuple[Pipeline, list[Attempt]]:
    """Return what standardizes and classifies states [examples, width], best on dev, whose answers
    are class names, and what was tried; `labels` are indices of `classes`.
    """
    scaler = StandardScaler()
    states, dev_states = scaler.fit_transform(states), scaler.transform(dev_states)
    best, tried = fit_regression(states, labels, dev_states, len(classes), STRENGTHS, score_dev)
    best.classes_ = np.array(classes)[best.classes_]
    return make_pipeline(scaler, best), tried


def predict_logits(
    folder: Path,
    task: Task,
    head: Head,
    features: Sequence[Feature],
    device: Device,
    cache: Path | None = None,
) -> list[np.ndarray]:
    """Return float32 [classes] for each feature, in the order of the head's labels."""
    encoder = open_encoder(str(folder), task, head, device)
    states = compute_states(encoder, features, head.max_length, device, cache)
    return list(compute_logits(load_pipeline(folder), states, head.labels))
