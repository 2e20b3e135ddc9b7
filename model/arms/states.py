"""Logistic regression on the states of a frozen encoder: what `pool_tokens` makes of each of its
last four layers. The folder has the encoder, and the regression in `states.npz`. A text has the
same states to the bit whatever it is computed with, so that a cache decides nothing: every batch
has ROWS rows, and a length that is the text's own, rounded up to STEP.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import nn

from amazon_electra.beam_jobs.core.errors import refuse
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.model.arms.cache import keep_arrays, read_arrays
from amazon_electra.model.arms.phrases import (
    MANY,
    add_scores,
    fold_scores,
    list_factors,
    take_directions,
)
from amazon_electra.model.arms.regression import Fitted, fit_regression
from amazon_electra.model.device import Device
from amazon_electra.model.encoders.config import POOLING
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.features import Feature, collate_features
from amazon_electra.model.finetuning.head import Head
from amazon_electra.model.finetuning.network import (
    hash_network,
    load_encoder,
    open_autocast,
    pool_tokens,
    prepare_network,
    select_inputs,
)
from amazon_electra.model.locks import exclusive_lock
from amazon_electra.model.threads import share_cores

REGRESSION = "states.npz"
MAX_LABELS = 100_000
"""Labels that a regression learns from at most, the first of the sample: with an encoder of width
384 their states take 0.6 GB, and as much again once standardized."""
STRENGTHS = (0.0001, 0.001, 0.01, 0.1)
"""Values of C that are tried, of standardized states."""
LAYERS = 4
"""The last layer alone knows more of its own objective than of opinions."""
ROWS = {"cpu": 8}
"""Rows of a batch by kind of device; 64 on others. More are no faster on a core (tried to 64)."""
STEP = 16
DEAD = 1e-5
"""A state whose deviation is less than this share of the median state's carries no information:
three of MiniLM's 1,536 have 1e-8 and 1e-32 of it, the others at least 0.4."""
MAX_BYTES = 1 << 28
"""Size of the cached states of an encoder: 43,000 texts where its width is 384."""


def open_encoder(folder: str, task: Task, head: Head, device: Device) -> nn.Module:
    """Return the encoder of a folder or hub name on the device."""
    encoder = load_encoder(folder, task)
    prepare_network(encoder, head, device)
    return encoder.eval()


@dataclass(frozen=True)
class StateLayer:
    """A linear layer on raw states that standardizes and classifies."""

    weights: np.ndarray
    """Float64 [classes, layers · width + width], of the states and of the last layer's at length
    1."""
    offsets: np.ndarray
    """Float64 [classes]."""

    def compute_logits(self, states: np.ndarray) -> np.ndarray:
        """Return float32 [texts, classes] of states [texts, width]."""
        width = self.weights.shape[1] - states.shape[1]
        every = np.hstack([states, take_directions(states, width)])
        with threadpool_limits(1):  # sums in another order would differ
            return (every @ self.weights.T + self.offsets).astype(np.float32)

    def save(self, folder: Path) -> None:
        np.savez(folder / REGRESSION, weights=self.weights, offsets=self.offsets)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the layer of a folder; UserError where its file is missing or damaged."""
        file, kinds = folder / REGRESSION, (OSError, ValueError, KeyError, BadZipFile)
        with refuse(*kinds, message="not a regression ({})", field="model", value=file):
            read = np.load(file, allow_pickle=False)
            weights, offsets = read["weights"], read["offsets"]
            read.close()
        return cls(weights, offsets)


def fit_layer(
    states: np.ndarray,
    labels: np.ndarray,
    classes: int,
    groups: np.ndarray,
    said: np.ndarray,
) -> tuple[StateLayer, Fitted, float]:
    """Return the layer with the best C, what was tried, and the factor of the classes' scores.
    `groups` stay in one fold; `said` are the directions of the classes' phrases, [classes, width]
    or none.
    """
    every = add_scores(states, said)
    scaler, width = fit_scaler(every), states.shape[1]
    rows = scaler.transform(every)
    # with more labels L-BFGS takes six times as long beside features that are ten times as large
    factors = list_factors(rows[:, width:], labels) if len(labels) < MANY else ()
    found = dict[float, Fitted]()
    for factor in (0.0, *factors):
        stressed = np.hstack([rows[:, :width], factor * rows[:, width:]])
        found[factor] = fit_regression(stressed, labels, classes, STRENGTHS, groups)
    factor = min(found, key=lambda one: min(tried.loss for tried in found[one].tried))
    layer = fold_layer(scaler, *found[factor].list_weights(), factor, said)
    return layer, found[factor], factor


def fold_layer(
    scaler: StandardScaler,
    weights: np.ndarray,
    offsets: np.ndarray,
    factor: float,
    said: np.ndarray,
) -> StateLayer:
    """Return the layer that does what these weights [rows, states + classes] do after the scaler,
    with scores of the classes that are multiplied by the factor.
    """
    rows = weights.astype(np.float64) / scaler.scale_
    rows[:, rows.shape[1] - len(said) :] *= factor
    return StateLayer(fold_scores(rows, said), offsets - rows @ scaler.mean_)


def fit_scaler(states: np.ndarray) -> StandardScaler:
    """Return the scaler of states [examples, width], which does not scale dead ones: standardized,
    they would be noise, with weights of 1e29 in the exported graph.
    """
    scaler = StandardScaler().fit(states)
    scaler.scale_[scaler.scale_ < DEAD * np.median(scaler.scale_)] = 1.0
    return scaler


def compute_states(
    encoder: nn.Module,
    features: Sequence[Feature],
    max_length: int,
    device: Device,
    cache: Path | None,
) -> np.ndarray:
    """Return what `pool_tokens` makes of each of the last layers, float32 [features, layers ×
    width]: 0.6 GB for 100,000 with a width of 384. `cache` is a folder that keeps them; arms that
    are fitted side by side wait there for each other and compute a text once.
    """
    if cache is None:
        return _compute_states(encoder, features, max_length, device, None)
    config: Any = encoder.config
    way = [max_length, device.kind, device.bf16, ROWS, STEP, LAYERS, getattr(config, POOLING, "")]
    file = cache / f"states-{hash_network(encoder, way)}.safetensors"
    with exclusive_lock(file.with_suffix(".lock")):
        return _compute_states(encoder, features, max_length, device, file)


def _compute_states(
    encoder: nn.Module,
    features: Sequence[Feature],
    max_length: int,
    device: Device,
    file: Path | None,
) -> np.ndarray:
    """Return the states; those that `file` has are read there, the others added to it."""
    config: Any = encoder.config
    layers = min(LAYERS, config.num_hidden_layers)
    states = np.empty((len(features), layers * config.hidden_size), np.float32)
    keys = [
        hashlib.blake2b(np.asarray(feature.ids[0], np.int64).tobytes(), digest_size=16).digest()
        for feature in features
    ]
    kept = read_arrays(file) if file else {}
    known = dict(zip(map(bytes, kept["keys"]), kept["states"], strict=True)) if kept else {}
    first: dict[bytes, int] = {}
    by_length: dict[int, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        if key in known:
            states[i] = known[key]
        elif first.setdefault(key, i) == i:
            by_length[min(max_length, -(-features[i].length // STEP) * STEP)].append(i)
    rows, done = ROWS.get(device.kind, 64), 0
    parts = [
        (texts[start : start + rows], length)
        for length, texts in sorted(by_length.items())
        for start in range(0, len(texts), rows)
    ]

    @torch.no_grad()
    def compute(members: list[int], length: int) -> np.ndarray:
        filled = [features[i] for i in [*members, *members[:1] * (rows - len(members))]]
        inputs = device.put(collate_features(filled, "classification", length)[0])
        with open_autocast(device):
            output = encoder(**select_inputs(encoder, inputs), output_hidden_states=True)
        last = torch.cat(output.hidden_states[-layers:], -1).float()
        pooled: np.ndarray = pool_tokens(last, inputs["attention_mask"], config).cpu().numpy()
        return pooled[: len(members)]

    with Progress(len(first), "examples", "states") as shown, share_cores(device.kind) as map_parts:
        members, tokens = [one for one, _ in parts], [length for _, length in parts]
        for part, pooled in zip(members, map_parts(compute, members, tokens), strict=True):
            states[part] = pooled
            done += len(part)
            shown.update(done)
    for i, key in enumerate(keys):
        if key in first:
            states[i] = states[first[key]]
    room = MAX_BYTES // states[0].nbytes - len(known)
    if file and (new := list(first.items())[: max(0, room)]):
        known |= {key: states[i] for key, i in new}
        every = np.frombuffer(b"".join(known), np.uint8).reshape(len(known), -1)
        keep_arrays({"keys": every, "states": np.stack(list(known.values()))}, file)
    return states
