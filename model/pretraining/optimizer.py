"""Builds AdamW, computes the learning rate of each step and takes it.

Where this differs from google-research/electra, and why: google's Adam leaves out the bias
correction of the moments, which makes its first steps several times larger than Kingma & Ba's at
the same learning rate and leans on the long warm-up to survive them; here the correction is in, as
in Loshchilov & Hutter 2019, so that short warm-ups are safe too.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from model.config import PretrainingConfig
from model.finetuning.training.optimizer import count_decays
from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.network.masked_prediction import PretrainingModel

HEAD_WARMUP = 0.25
"""Share of the steps in which a head learns alone that warm it up at most. So it was in the runs of
a million tokens of docs/results.md, "Starting from a published encoder": 0.1 of 0.4.
"""


@dataclass(frozen=True)
class Pace:
    """How a parameter learns; those that share one are a group of the optimizer."""

    peak: float  # learning rate
    begins: float  # share of the run before which it is frozen
    weight_decay: float
    warmup: float  # share of the run


def group_parameters(
    model: nn.Module, config: PretrainingConfig, adaptation: AdaptationConfig
) -> list[dict[str, Any]]:
    """Return the optimizer's groups: decay on matrices, none on LayerNorm and biases (google)."""
    groups: dict[Pace, list[nn.Parameter]] = {}
    for parameter, pace in _list_paces(model, config, adaptation):
        groups.setdefault(pace, []).append(parameter)
    return [{"params": parameters, **asdict(pace)} for pace, parameters in groups.items()]


def _list_paces(
    model: nn.Module, config: PretrainingConfig, adaptation: AdaptationConfig
) -> Iterator[tuple[nn.Parameter, Pace]]:
    warmup = config.warmup
    if adaptation.head_steps:  # the head is at its highest rate while it learns alone
        warmup = min(warmup, HEAD_WARMUP * adaptation.head_steps)
    trunk = model.list_trunk_names() if isinstance(model, PretrainingModel) else set()
    depth = len(model.trunk.layers) if isinstance(model, PretrainingModel) else 0
    top = adaptation.trunk_learning_rate or config.learning_rate
    for name, parameter in model.named_parameters():
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        if config.fixed_generator and name.startswith(("embeddings.", "generator")):
            yield parameter, Pace(config.learning_rate, math.inf, 0.0, config.warmup)
            continue
        if name not in trunk:
            yield parameter, Pace(config.learning_rate, 0.0, decay, warmup)
            continue
        # google's layers count the projection to the embeddings
        decays = count_decays(name.replace(".project.", ".embeddings_project."), depth)
        is_frozen = adaptation.freeze_embeddings and name.startswith("embeddings.")
        yield (
            parameter,
            Pace(
                peak=top * adaptation.layer_decay**decays,
                begins=math.inf if is_frozen else adaptation.head_steps,
                weight_decay=0.0 if adaptation.origin_pull else decay,
                warmup=config.warmup,
            ),
        )


def build_optimizer(
    model: nn.Module,
    config: PretrainingConfig,
    fused: bool,
    adaptation: AdaptationConfig | None = None,
) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        group_parameters(model, config, adaptation or AdaptationConfig()),
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=fused,
    )


class Update:
    """Clips the gradients of all parameters and takes a step of AdamW; where that pays both are one
    compiled graph, which scales a gradient where it is used.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        optimizer: torch.optim.AdamW,
        clip: float,
        is_compiled: bool,
    ) -> None:
        self._parameters, self._optimizer, self._clip = list(parameters), optimizer, clip
        self._compiled = torch.compile(_clip_and_step, fullgraph=True) if is_compiled else None

    def take_step(self) -> Tensor:
        """Change the parameters that have gradients; return the gradients' norm before clipping.

        The first step of a parameter is not compiled: in it the optimizer makes its moments.
        """
        states = self._optimizer.state
        if self._compiled is None or any(
            p.grad is not None and not states.get(p) for p in self._parameters
        ):
            norm = nn.utils.clip_grad_norm_(self._parameters, self._clip)
            self._optimizer.step()
            return norm.detach()
        groups = [_list_tensors(group, states) for group in self._optimizer.param_groups]
        return self._compiled([group for group in groups if group["params"]], self._clip)


def _list_tensors(group: dict[str, Any], states: Mapping[Tensor, Any]) -> dict[str, Any]:
    """Return what AdamW takes of a group's parameters that have gradients.

    The learning rate is a tensor: of other numbers each value would compile a graph of its own.
    """
    learning = [parameter for parameter in group["params"] if parameter.grad is not None]
    moments = [states[parameter] for parameter in learning]
    return {
        "params": learning,
        "grads": [parameter.grad for parameter in learning],
        "exp_avgs": [moment["exp_avg"] for moment in moments],
        "exp_avg_sqs": [moment["exp_avg_sq"] for moment in moments],
        "state_steps": [moment["step"] for moment in moments],
        "lr": torch.tensor(group["lr"]),
        "weight_decay": group["weight_decay"],
        "betas": group["betas"],
        "eps": group["eps"],
    }


@torch.no_grad()
def _clip_and_step(groups: list[dict[str, Any]], clip: float) -> Tensor:
    """Do what `clip_grad_norm_` and `AdamW.step` do, in which torch.compile breaks."""
    norm = nn.utils.get_total_norm([gradient for group in groups for gradient in group["grads"]])
    scale = torch.clamp(clip / (norm + 1e-6), max=1.0)
    for group in groups:
        tensors = group | {"grads": [gradient * scale for gradient in group["grads"]]}
        beta1, beta2 = tensors.pop("betas")
        adamw(
            **tensors,
            max_exp_avg_sqs=[],
            beta1=beta1,
            beta2=beta2,
            foreach=True,
            capturable=True,
            amsgrad=False,
            maximize=False,
        )
    return norm


def begin_step(optimizer: torch.optim.Optimizer, progress: float) -> None:
    """Set the learning rates of a step; what is frozen yet needs no gradient in it."""
    for group in optimizer.param_groups:
        is_learning = group["begins"] == 0 or progress > group["begins"]
        begins = group["begins"] if is_learning else progress
        group["lr"] = compute_learning_rate(group["peak"], group["warmup"], progress, begins)
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
