"""Build the optimizer of a fine-tuning, with lower rates layer by layer, and its schedule."""

import itertools
from typing import Any

import torch
from torch import nn

from amazon_electra.model.config import FinetuningSettings


def build_optimizer(
    learning: nn.ModuleList,
    settings: FinetuningSettings,
    learning_rate: float,
    fused: bool,
) -> torch.optim.AdamW:
    """Return AdamW with the learning rate falling from the head down (google: epsilon 1e-6, no
    decay on LayerNorm and biases).

    `learning` is the network, and what a loss learns besides, at the rate of the head.
    """
    config: Any = learning[0].config
    depth = int(getattr(config, "num_hidden_layers", getattr(config, "n_layers", 12)))
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in learning.named_parameters():
        if parameter.requires_grad:
            rate = learning_rate * settings.layer_decay ** count_decays(name, depth)
            decay = 0.0 if parameter.ndim == 1 else settings.weight_decay
            groups.setdefault((rate, decay), []).append(parameter)
    options = [
        {"params": parameters, "lr": rate, "peak": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(options, eps=1e-6, fused=fused)


def count_decays(name: str, depth: int) -> int:
    """Return how often the layer decay applies to a parameter: 0 for the head, 2 for the top layer,
    depth + 2 for the embeddings (google-research/electra, _get_layer_lrs in model/optimization.py).
    """
    parts = name.split(".")
    for before, part in itertools.pairwise(parts):
        if before in ("layer", "layers", "h") and part.isdigit():
            return depth + 1 - int(part)
    return depth + 2 if "embeddings" in name else 0


def set_learning_rate(
    optimizer: torch.optim.Optimizer, step: int, steps: int, warmup: float
) -> None:
    """Set the rates of a step: linear up over the warm-up share, then linear to 0."""
    rising = max(1, round(steps * warmup)) if warmup else 0
    share = (step + 1) / rising if step < rising else (steps - step) / max(1, steps - rising)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share


def get_learning_rate(optimizer: torch.optim.Optimizer) -> float:
    """Return the highest rate of all layers, that of the head."""
    return max(group["lr"] for group in optimizer.param_groups)
