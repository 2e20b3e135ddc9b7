"""Builds AdamW and computes the learning rate of each step.

Where this differs from google-research/electra, and why: google's Adam leaves out the bias
correction of the moments, which makes its first steps several times larger than Kingma & Ba's at
the same learning rate and leans on the long warm-up to survive them; here the correction is in, as
in Loshchilov & Hutter 2019, so that short warm-ups are safe too.
"""

import torch
from torch import nn

from model.config import PretrainingConfig


def group_parameters(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return the optimizer's groups: decay on matrices, none on LayerNorm and biases (google)."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def build_optimizer(model: nn.Module, config: PretrainingConfig, fused: bool) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        group_parameters(model, config.weight_decay),
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=fused,
    )


def compute_learning_rate(config: PretrainingConfig, progress: float) -> float:
    """Return the rate after linear warm-up times linear decay to 0 (google).

    `progress` runs from 0 to 1 over the whole run.
    """
    warm = min(1.0, progress / config.warmup) if config.warmup else 1.0
    return config.learning_rate * warm * max(0.0, 1.0 - progress)
