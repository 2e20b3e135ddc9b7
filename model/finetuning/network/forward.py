"""Run a network forward: in the device's precision, with the inputs its architecture takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from model.device import Device
from model.finetuning.features.batches import collate_features, cut_prediction_batches
from model.finetuning.features.examples import Shape
from model.finetuning.features.featurizer import Feature

PREDICTION_BATCH = 64


def open_autocast(device: Device) -> torch.autocast:
    """Return a context in which products are computed in the precision of the device."""
    return torch.autocast(device.torch.type, torch.bfloat16, enabled=device.bf16)


def select_inputs(model: nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the inputs the network takes: DistilBERT and others have no token types."""
    config: Any = model.config
    if getattr(config, "type_vocab_size", 0) > 1:
        return inputs
    return {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}


@torch.no_grad()
def predict_logits(
    model: nn.Module,
    features: Sequence[Feature],
    shape: Shape,
    device: Device,
    pad_id: int = 0,
    batch: int = PREDICTION_BATCH,
) -> list[np.ndarray]:
    """Return the network's logits per feature, in the order of the features.

    Shapes: classification [classes], regression [1], choice [choices], tokens [tokens, classes],
    span [2, tokens].
    """
    model.eval()
    results: list[np.ndarray] = [np.empty(0)] * len(features)
    for members in cut_prediction_batches(features, batch):
        inputs, _ = collate_features([features[i] for i in members], shape, pad_id=pad_id)
        inputs = {name: tensor.to(device.torch) for name, tensor in inputs.items()}
        with open_autocast(device):
            output = model(**select_inputs(model, inputs))
        if shape == "span":
            logits = torch.stack([output.start_logits, output.end_logits], 1)
        else:
            logits = output.logits
        for i, row in zip(members, logits.float().cpu().numpy(), strict=True):
            length = features[i].length
            if shape == "span":
                row = row[:, :length]
            elif shape == "tokens":
                row = row[:length]
            results[i] = row
    return results
