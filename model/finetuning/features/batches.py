"""Form batches of features.

Batches hold texts of like length and are padded to the longest of their own, not to the maximum:
reviews are about 80 words, the maximum is for the few long ones. Sorting happens within pools of
batches, so the order stays random.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from model.finetuning.features.examples import Shape
from model.finetuning.features.featurizer import IGNORED, Feature

POOL_BATCHES = 32
"""Batches whose texts are sorted by length together."""


def draw_training_batches(
    features: Sequence[Feature], size: int, generator: np.random.Generator, grouped: bool = True
) -> list[np.ndarray]:
    """Return the indices of each batch of one epoch, in random order."""
    order = generator.permutation(len(features))
    if not grouped:
        return [order[i : i + size] for i in range(0, len(order), size)]
    lengths = np.array([feature.length for feature in features])
    batches = []
    for start in range(0, len(order), POOL_BATCHES * size):
        pool = order[start : start + POOL_BATCHES * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + size] for i in range(0, len(pool), size)]
    return [batches[i] for i in generator.permutation(len(batches))]


def cut_prediction_batches(features: Sequence[Feature], size: int) -> Iterator[np.ndarray]:
    """Yield the indices of batches sorted by length, which is the least padding."""
    order = np.argsort([feature.length for feature in features], kind="stable")
    yield from (order[i : i + size] for i in range(0, len(order), size))


def collate_features(
    features: Sequence[Feature], shape: Shape, pad_to: int | None = None, pad_id: int = 0
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return network inputs [batch, tokens] ([batch, choices, tokens] for `choice`) and targets."""
    length = pad_to or max(feature.length for feature in features)
    rows = [row for feature in features for row in feature.ids]
    types = [row for feature in features for row in feature.types]
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    mask, token_types = np.zeros_like(ids), np.zeros_like(ids)
    for i, (row, row_types) in enumerate(zip(rows, types, strict=True)):
        ids[i, : len(row)], mask[i, : len(row)], token_types[i, : len(row)] = row, 1, row_types
    inputs: dict[str, np.ndarray] = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": token_types,
    }
    if shape == "choice":
        inputs = {name: array.reshape(len(features), -1, length) for name, array in inputs.items()}
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    return tensors, _collate_targets(features, shape, length)


def _collate_targets(features: Sequence[Feature], shape: Shape, length: int) -> torch.Tensor:
    if shape != "tokens":
        return torch.tensor([feature.target for feature in features])
    labels = torch.full((len(features), length), IGNORED)
    for i, feature in enumerate(features):
        assert isinstance(feature.target, list)
        labels[i, : len(feature.target)] = torch.tensor(feature.target)
    return labels
