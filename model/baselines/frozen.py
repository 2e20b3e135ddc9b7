"""Logistic regression on the states of a frozen encoder: the mean over the tokens of each of its
last four layers. The folder has the encoder, and the regression in `model.skops`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from beam_jobs.core.progress import track_progress
from model.baselines.regression import (
    Attempt,
    ScoreDev,
    compute_logits,
    fit_regression,
    load_pipeline,
)
from model.device import Device
from model.finetuning.examples import Task
from model.finetuning.features import Feature, collate_features, cut_prediction_batches
from model.finetuning.network import (
    PREDICTION_BATCH,
    PREDICTION_TOKENS,
    Head,
    load_encoder,
    open_autocast,
    prepare_network,
    select_inputs,
)

LAYERS = 4
"""The last layer alone knows more of its own objective than of opinions."""
STRENGTHS = (0.0001, 0.001, 0.01, 0.1)
"""Values of C that are tried, of standardized states."""


def open_encoder(folder: str, task: Task, head: Head, device: Device) -> nn.Module:
    """Return the encoder of a folder or hub name on the device."""
    encoder = load_encoder(folder, task)
    prepare_network(encoder, head, device, needs_states=True)
    return encoder.eval()


@torch.no_grad()
def compute_states(encoder: nn.Module, features: Sequence[Feature], device: Device) -> np.ndarray:
    """Return float32 [features, layers × width]: 0.6 GB for 100,000 with a width of 384."""
    config: Any = encoder.config
    layers = min(LAYERS, config.num_hidden_layers)
    states = np.empty((len(features), layers * config.hidden_size), np.float32)
    tokens, done = PREDICTION_TOKENS.get(device.kind, 0), 0
    with track_progress(len(features), "examples", "states") as shown:
        for members in cut_prediction_batches(features, PREDICTION_BATCH, tokens):
            inputs, _ = collate_features([features[i] for i in members], "classification")
            inputs = device.put(inputs)
            with open_autocast(device):
                output = encoder(**select_inputs(encoder, inputs), output_hidden_states=True)
            last = torch.cat(output.hidden_states[-layers:], -1).float()
            mask = inputs["attention_mask"].unsqueeze(-1)
            states[members] = ((last * mask).sum(1) / mask.sum(1)).cpu().numpy()
            done += len(members)
            shown.update(done)
    return states


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
    folder: Path, task: Task, head: Head, features: Sequence[Feature], device: Device
) -> list[np.ndarray]:
    """Return float32 [classes] for each feature, in the order of the head's labels."""
    encoder = open_encoder(str(folder), task, head, device)
    states = compute_states(encoder, features, device)
    return list(compute_logits(load_pipeline(folder), states, head.labels))
