"""Trains a network on features and keeps its best state on dev; one call per learning rate."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from model.device import Device
from model.finetuning import checkpoint, losses
from model.finetuning.attempt import Attempt, rank
from model.finetuning.batches import Feature, collate, prediction_batches, training_batches
from model.finetuning.cheap_dropout import DropoutNoise
from model.finetuning.checkpoint import Position
from model.finetuning.config import FinetuningSettings
from model.finetuning.examples import Shape

PREDICTION_BATCH = 64
EVALUATIONS = 5
"""Of a training on dev, where nothing else is asked for: with few labels more of them cost as much as the training."""
CHECKPOINT_SECONDS = 60.0
CHECKPOINT_SHARE = 20.0
"""From one checkpoint to the next at least so many seconds, and so many times what it took to write it: what a kill can
lose is a minute, and what saving costs is a twentieth."""
DevScore = Callable[[nn.Module], dict[str, float]]
"""Measures a network on dev: {metric: value}, the first decides, larger is better; `loss` breaks ties."""


@dataclass(frozen=True)
class Training:
    """Everything but the network and the learning rate."""

    features: Sequence[Feature]
    shape: Shape
    settings: FinetuningSettings
    seed: int
    device: Device
    dev_score: DevScore
    report: Callable[[int, dict[str, Any]], None]
    """Called with the step and numbers to log."""
    class_weights: torch.Tensor | None = None
    pad_id: int = 0
    checkpoint: Path | None = None
    """File a killed training goes on from."""
    loss: nn.Module | None = None
    """Network, inputs, targets and the indices of the features → loss; None: the settings' own loss. What it learns
    itself is trained with the network and not kept."""

    @property
    def per_epoch(self) -> int:
        return -(-len(self.features) // self.settings.batch)

    @property
    def steps(self) -> int:
        return max(1, round(self.per_epoch * self.settings.epochs))

    @property
    def evaluate_every(self) -> int:
        if self.settings.evaluations_per_epoch is None:
            return max(self.per_epoch, -(-self.steps // EVALUATIONS))
        return max(1, self.per_epoch // self.settings.evaluations_per_epoch)


def train(model: nn.Module, training: Training, learning_rate: float) -> Attempt:
    """Leaves the best state in the attempt (on the CPU); the network itself ends where training ended."""
    settings = training.settings
    learning = nn.ModuleList([model, training.loss] if training.loss is not None else [model])
    optimizer = _optimizer(learning, settings, learning_rate, training.device.fused_optimizer)
    noise = DropoutNoise(model) if training.device.kind == "cpu" else None
    attempt = Attempt(learning_rate)
    position = checkpoint.resume(training.checkpoint, learning, optimizer, attempt, training.device.torch)
    batches = itertools.islice(_batches(training), position.step, None)
    started = time.perf_counter()
    due, seen = started + CHECKPOINT_SECONDS, 0
    while position.step < training.steps and not attempt.diverged and not _given_up(position.worse, settings):
        chosen = next(batches)
        _set_learning_rate(optimizer, position.step, training.steps, settings.warmup)
        if noise is not None:
            noise.begin(training.seed, position.step)
        position.losses.append(_step(model, training, optimizer, chosen))
        position.step, seen = position.step + 1, seen + len(chosen)
        if position.step % training.evaluate_every == 0 or position.step == training.steps:
            _evaluate(model, training, attempt, position, _rate(optimizer))
        if training.checkpoint and not attempt.diverged and time.perf_counter() >= due:
            begun = time.perf_counter()
            checkpoint.save(training.checkpoint, learning, optimizer, attempt, position)
            due = time.perf_counter() + max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * (time.perf_counter() - begun))
    attempt.steps = position.step
    attempt.examples_per_second = seen / (time.perf_counter() - started)
    return attempt


def _batches(training: Training) -> Iterator[np.ndarray]:
    """Of one epoch after the other without end; the same for the same seed, so that a resumed training goes on."""
    generator = np.random.default_rng(training.seed)
    while True:
        settings = training.settings
        yield from reversed(training_batches(training.features, settings.batch, generator, settings.length_grouped))


def _given_up(worse: int, settings: FinetuningSettings) -> bool:
    return settings.patience is not None and worse >= settings.patience


def _step(model: nn.Module, training: Training, optimizer: torch.optim.Optimizer, chosen: np.ndarray) -> torch.Tensor:
    model.train()
    settings = training.settings
    fixed = not settings.length_grouped or training.device.kind == "xla"
    pad_to = settings.max_length if fixed else None
    inputs, targets = collate([training.features[i] for i in chosen], training.shape, pad_to, training.pad_id)
    inputs = {name: tensor.to(training.device.torch) for name, tensor in inputs.items()}
    targets = targets.to(training.device.torch)
    with autocast(training.device):
        if training.loss is not None:
            loss = training.loss(model, inputs, targets, chosen)
        else:
            loss = supervised_loss(model(**accepted(model, inputs)), targets, training)
    loss.backward()
    if settings.clip:
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    training.device.end_step()
    return loss.detach()


def autocast(device: Device) -> torch.autocast:
    return torch.autocast(device.torch.type, torch.bfloat16, enabled=device.bf16)


def supervised_loss(output: Any, targets: torch.Tensor, training: Training) -> torch.Tensor:
    """The loss against the labels, of a network's output."""
    if training.shape == "span":
        return losses.span(output.start_logits, output.end_logits, targets)
    if training.shape == "regression":
        return losses.regression(output.logits, targets)
    return losses.classification(output.logits, targets, training.settings, training.class_weights)


def accepted(model: nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """DistilBERT and others have no token types."""
    config: Any = model.config
    if getattr(config, "type_vocab_size", 0) > 1:
        return inputs
    return {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}


def _evaluate(model: nn.Module, training: Training, attempt: Attempt, position: Position, rate: float) -> None:
    """Measures the network on dev and keeps it if it is better, or finds that it has diverged."""
    loss = float(torch.stack(position.losses).mean())
    position.losses = []
    dev = training.dev_score(model) if math.isfinite(loss) and _all_finite(model) else {}
    if rank(dev)[0] == -math.inf:
        attempt.diverged = True
        return
    numbers = {"train_loss": loss, "learning_rate": rate} | {f"dev_{name}": value for name, value in dev.items()}
    training.report(position.step, numbers)
    if attempt.state and rank(dev) <= attempt.rank():
        position.worse += 1
        return
    position.worse = 0
    attempt.dev, attempt.best_step = dev, position.step
    attempt.state = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def _all_finite(model: nn.Module) -> bool:
    """The loss of the last step is finite still where its gradient was not."""
    return bool(torch.stack([parameter.isfinite().all() for parameter in model.parameters()]).all())


def _optimizer(
    learning: nn.ModuleList, settings: FinetuningSettings, learning_rate: float, fused: bool = False
) -> torch.optim.AdamW:
    """AdamW with the learning rate falling from the head down (google: eps 1e-6, no decay on LayerNorm and biases).

    `learning`: the network, and what a loss learns besides, at the rate of the head.
    """
    config: Any = learning[0].config
    depth = int(getattr(config, "num_hidden_layers", getattr(config, "n_layers", 12)))
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in learning.named_parameters():
        if parameter.requires_grad:
            rate = learning_rate * settings.layer_decay ** _distance_from_top(name, depth)
            decay = 0.0 if parameter.ndim == 1 else settings.weight_decay
            groups.setdefault((rate, decay), []).append(parameter)
    options = [{"params": p, "lr": lr, "peak": lr, "weight_decay": decay} for (lr, decay), p in groups.items()]
    return torch.optim.AdamW(options, eps=1e-6, fused=fused)


def _distance_from_top(name: str, depth: int) -> int:
    """0 for the head, 1 for the top layer, depth + 1 for the embeddings."""
    parts = name.split(".")
    for before, part in itertools.pairwise(parts):
        if before in ("layer", "layers", "h") and part.isdigit():
            return depth - int(part)
    return depth + 1 if "embeddings" in name else 0


def _set_learning_rate(optimizer: torch.optim.Optimizer, step: int, steps: int, warmup: float) -> None:
    """Linear up over the warm-up, then linear to 0."""
    rising = max(1, round(steps * warmup)) if warmup else 0
    share = (step + 1) / rising if step < rising else (steps - step) / max(1, steps - rising)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * min(1.0, share)


def _rate(optimizer: torch.optim.Optimizer) -> float:
    return max(group["lr"] for group in optimizer.param_groups)


@torch.no_grad()
def outputs(
    model: nn.Module,
    features: Sequence[Feature],
    shape: Shape,
    device: Device,
    pad_id: int = 0,
    batch: int = PREDICTION_BATCH,
) -> list[np.ndarray]:
    """The network's logits per feature, in the order of the features.

    classification [classes], regression [1], choice [choices], tokens [tokens, classes], span [2, tokens].
    """
    model.eval()
    results: list[np.ndarray] = [np.empty(0)] * len(features)
    for chosen in prediction_batches(features, batch):
        inputs, _ = collate([features[i] for i in chosen], shape, pad_id=pad_id)
        inputs = {name: tensor.to(device.torch) for name, tensor in inputs.items()}
        with autocast(device):
            output = model(**accepted(model, inputs))
        logits = torch.stack([output.start_logits, output.end_logits], 1) if shape == "span" else output.logits
        for i, row in zip(chosen, logits.float().cpu().numpy(), strict=True):
            length = features[i].length
            results[i] = row[:, :length] if shape == "span" else row[:length] if shape == "tokens" else row
    return results
