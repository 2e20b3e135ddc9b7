"""AdamW and the learning rate of each step; unlike google's Adam it corrects the moments."""

from typing import Any

import torch
from torch import Tensor, nn

from amazon_electra.model.config import AdaptationConfig, PretrainingConfig
from amazon_electra.model.pretraining.network.masked_prediction import PretrainingModel


def build_optimizer(
    model: PretrainingModel,
    config: PretrainingConfig,
    fused: bool,
    adaptation: AdaptationConfig | None = None,
) -> torch.optim.AdamW:
    """Return AdamW: decay on matrices alone (google); on a GPU rates are tensors, for graphs."""
    trunk = model.list_trunk_names()
    trunk_rate = adaptation.trunk_learning_rate if adaptation else None
    paces: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        rate = trunk_rate if trunk_rate and name in trunk else config.learning_rate
        paces.setdefault((rate, decay), []).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": parameters, "peak": rate, "weight_decay": decay}
        for (rate, decay), parameters in paces.items()
    ]
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


def set_learning_rates(optimizer: torch.optim.Optimizer, warmup: float, progress: float) -> None:
    """Set the learning rates of a step; `warmup` is a share of the run."""
    for group in optimizer.param_groups:
        rate = compute_learning_rate(group["peak"], warmup, progress)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def compute_learning_rate(peak: float, warmup: float, progress: float) -> float:
    """Return the rate after linear warm-up times linear decay to 0 (google); both are shares."""
    warm = min(1.0, progress / warmup) if warmup else 1.0
    return peak * warm * max(0.0, 1.0 - progress)
