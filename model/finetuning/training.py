"""Train a network on features and keep its best state on dev; one call per learning rate."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import Device
from amazon_electra.model.evaluation.metrics import rank_dev_metrics
from amazon_electra.model.finetuning import checkpoint, losses
from amazon_electra.model.finetuning.checkpoint import Attempt, Position
from amazon_electra.model.finetuning.examples import Shape
from amazon_electra.model.finetuning.features import (
    Feature,
    collate_features,
    draw_training_batches,
    list_lengths,
    round_length,
)
from amazon_electra.model.finetuning.network import open_autocast, select_inputs
from amazon_electra.model.finetuning.optimizer import (
    build_optimizer,
    get_learning_rate,
    set_learning_rate,
)

EVALUATIONS = 5
"""Evaluations on dev in a training: with few labels more cost as much as the training."""
CHECKPOINT_SECONDS = 60.0
CHECKPOINT_SHARE = 20.0
"""Between two checkpoints lie at least so many seconds, and so many times what it took to write
one: a kill loses a minute, and saving costs a twentieth.
"""
MAX_EPOCHS = 20
"""That `least_examples` may make of the epochs."""
ScoreDev = Callable[[nn.Module], dict[str, float]]
"""Returns {metric: value} on dev; the first decides, larger is better; `loss` breaks ties. Nothing
where there is no dev: then the last state is the best."""


@dataclass(frozen=True)
class TrainingSetup:
    """Everything that a training needs but the network and the learning rate."""

    features: Sequence[Feature]
    shape: Shape
    settings: FinetuningSettings
    seed: int
    device: Device
    score_dev: ScoreDev
    report: Callable[[int, dict[str, Any]], None]
    """Called with the step and numbers to log."""
    show_step: Callable[[int], None] = lambda step: None
    """Called with the number of steps done, after each."""
    class_weights: torch.Tensor | None = None
    pad_id: int = 0
    checkpoint: Path | None = None
    """Folder of what a killed training goes on from."""
    loss: nn.Module | None = None
    """Computes the loss from network, inputs, targets and the indices of the features; None: the
    loss of the settings. Parameters of its own are trained with the network and not kept.
    """

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.features) // self.settings.batch)

    @property
    def steps(self) -> int:
        few = min(MAX_EPOCHS, self.settings.least_examples / len(self.features))
        return max(1, round(self.steps_per_epoch * max(self.settings.epochs, few)))

    @property
    def evaluate_every(self) -> int:
        if self.settings.evaluations_per_epoch is None:
            return max(self.steps_per_epoch, -(-self.steps // EVALUATIONS))
        return max(1, self.steps_per_epoch // self.settings.evaluations_per_epoch)


def train(model: nn.Module, training: TrainingSetup, learning_rate: float) -> Attempt:
    """Return the attempt with the best state; the network itself ends where training ended."""
    settings = training.settings
    learning = nn.ModuleList([model, training.loss] if training.loss is not None else [model])
    optimizer = build_optimizer(learning, settings, learning_rate, training.device.fused_optimizer)
    attempt = Attempt(learning_rate)
    position = checkpoint.resume_training(
        training.checkpoint, learning, optimizer, attempt, training.device
    )
    batches = itertools.islice(_stream_batches(training), position.step, None)
    started = time.perf_counter()
    due, seen = started + CHECKPOINT_SECONDS, 0
    while position.step < training.steps and not attempt.diverged:
        members, pad_to = next(batches)
        set_learning_rate(optimizer, position.step, training.steps, settings.warmup)
        loss = _train_step(model, training, optimizer, members, pad_to)
        position.losses.append(loss)
        position.step, seen = position.step + 1, seen + len(members)
        training.show_step(position.step)
        if position.step % training.evaluate_every == 0 or position.step == training.steps:
            _evaluate_on_dev(model, training, attempt, position, get_learning_rate(optimizer))
        begun = time.perf_counter()
        if training.checkpoint and begun >= due and not attempt.diverged:
            checkpoint.save_checkpoint(training.checkpoint, learning, optimizer, attempt, position)
            due = time.perf_counter() + max(
                CHECKPOINT_SECONDS, CHECKPOINT_SHARE * (time.perf_counter() - begun)
            )
    attempt.steps = position.step
    attempt.examples_per_second = seen / (time.perf_counter() - started)
    return attempt


def _stream_batches(training: TrainingSetup) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the indices of the features of a batch, and the tokens it is padded to, epoch after
    epoch without end, the same for the same seed.
    """
    lengths = list_lengths(training.features)
    longest, device = int(lengths.max()), training.device
    generator = np.random.default_rng(training.seed)
    while True:
        for members in reversed(draw_training_batches(lengths, training.settings.batch, generator)):
            pad_to = round_length(int(lengths[members].max()), longest, device.torch)
            if device.kind == "xla" and training.settings.max_length:  # one shape, compiled once
                pad_to = training.settings.max_length
            yield members, pad_to


def _train_step(
    model: nn.Module,
    training: TrainingSetup,
    optimizer: torch.optim.Optimizer,
    members: np.ndarray,
    pad_to: int,
) -> torch.Tensor:
    """Make one step on the features `members` and return its loss on the device."""
    model.train()
    settings = training.settings
    batch = [training.features[i] for i in members]
    inputs, targets = collate_features(batch, training.shape, pad_to, training.pad_id)
    inputs = training.device.put(inputs | {"targets": targets})
    targets = inputs.pop("targets")
    with open_autocast(training.device):
        if training.loss is not None:
            loss = training.loss(model, inputs, targets, members)
        else:
            loss = compute_supervised_loss(model(**select_inputs(model, inputs)), targets, training)
    loss.backward()
    if settings.clip:
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    training.device.end_step()
    return loss.detach()


def compute_supervised_loss(
    output: Any, targets: torch.Tensor, training: TrainingSetup
) -> torch.Tensor:
    """Return the loss of a network's output against the labels."""
    if training.shape == "span":
        return losses.compute_span_loss(output.start_logits, output.end_logits, targets)
    if training.shape == "regression":
        return F.mse_loss(output.logits.float().squeeze(-1), targets.float())
    if training.shape == "multilabel":
        return F.binary_cross_entropy_with_logits(output.logits.float(), targets.float())
    return losses.compute_classification_loss(
        output.logits, targets, training.settings, training.class_weights
    )


def _evaluate_on_dev(
    model: nn.Module, training: TrainingSetup, attempt: Attempt, position: Position, rate: float
) -> None:
    """Measure the network on dev; keep its state if it is better, or find that it has diverged."""
    loss = float(torch.stack(position.losses).mean())
    position.losses = []
    # the last gradient may have been no number, although the loss was one
    finite = torch.stack([parameter.isfinite().all() for parameter in model.parameters()]).all()
    is_finite = math.isfinite(loss) and bool(finite)
    dev = training.score_dev(model) if is_finite else {}
    if not is_finite or (dev and rank_dev_metrics(dev)[0] == -math.inf):
        attempt.diverged = True
        return
    numbers = {"train_loss": loss, "learning_rate": rate} | {f"dev_{n}": v for n, v in dev.items()}
    training.report(position.step, numbers)
    if not (attempt.state and dev) or rank_dev_metrics(dev) > attempt.rank_key():
        attempt.dev, attempt.best_step = dev, position.step
        attempt.state = {name: t.detach().cpu().clone() for name, t in model.state_dict().items()}
