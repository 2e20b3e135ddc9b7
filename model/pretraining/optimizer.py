"""Builds AdamW and sets the learning rate of each step.

Where this differs from google-research/electra, and why: google's Adam leaves out the bias
correction of the moments, which makes its first steps several times larger than Kingma & Ba's at
the same learning rate and leans on the long warm-up to survive them; here the correction is in, as
in Loshchilov & Hutter 2019, so that short warm-ups are safe too.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amazon_electra.model.config import AdaptationConfig, PretrainingConfig
from amazon_electra.model.pretraining.network.masked_prediction import PretrainingModel

HEAD_WARMUP = 0.25
"""Share of the steps in which a head learns alone that warm it up at most. So it was in the runs of
a million tokens, 0.1 of 0.4: `git show ed7f0f0:docs/results.md`, "Starting from a published
encoder".
"""


@dataclass(frozen=True)
class Pace:
    """How a parameter learns; those that share one are a group of the optimizer."""

    peak: float  # learning rate
    begins: float  # share of the run before which it is frozen
    weight_decay: float
    warmup: float  # share of the run


def build_optimizer(
    model: PretrainingModel,
    config: PretrainingConfig,
    fused: bool,
    adaptation: AdaptationConfig | None = None,
) -> torch.optim.AdamW:
    """Return the optimizer: decay on matrices, none on LayerNorm and biases (google). On a GPU its
    rates are tensors, which a CUDA graph reads anew.
    """
    adaptation = adaptation or AdaptationConfig()
    warmup = config.warmup
    if adaptation.head_steps:  # the head is at its highest rate while it learns alone
        warmup = min(warmup, HEAD_WARMUP * adaptation.head_steps)
    trunk = model.list_trunk_names()
    trunk_rate = adaptation.trunk_learning_rate or config.learning_rate
    paces: dict[Pace, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        if name in trunk:
            pace = Pace(trunk_rate, adaptation.head_steps, decay, config.warmup)
        else:
            pace = Pace(config.learning_rate, 0.0, decay, warmup)
        paces.setdefault(pace, []).append(parameter)
    groups: list[dict[str, Any]] = [{"params": p, **asdict(pace)} for pace, p in paces.items()]
    device = next(model.parameters()).device
    if device.type == "cuda":
        groups = [group | {"lr": torch.zeros((), device=device)} for group in groups]
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=fused,
        capturable=device.type == "cuda",
    )


def begin_step(optimizer: torch.optim.Optimizer, progress: float) -> None:
    """Set the learning rates of a step; what is frozen yet needs no gradient in it."""
    for group in optimizer.param_groups:
        is_learning = group["begins"] == 0 or progress > group["begins"]
        begins = group["begins"] if is_learning else progress
        rate = compute_learning_rate(group["peak"], group["warmup"], progress, begins)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        for parameter in group["params"]:
            parameter.requires_grad_(is_learning)


def compute_learning_rate(
    peak: float, warmup: float, progress: float, begins: float = 0.0
) -> float:
    """Return the rate after linear warm-up times linear decay to 0 (google).

    `progress` runs from 0 to 1 over the whole run; the warm-up, a share of it, from `begins` on.
    """
    warm = min(1.0, (progress - begins) / warmup) if warmup else 1.0
    return peak * warm * max(0.0, 1.0 - progress)
