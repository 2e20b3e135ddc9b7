"""Train a network on features and keep its best state on dev; one call per learning rate."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import Device
from amazon_electra.model.evaluation.metrics import rank_dev_metrics
from amazon_electra.model.finetuning.examples import Shape
from amazon_electra.model.finetuning.features import (
    IGNORED,
    Feature,
    collate_features,
    draw_training_batches,
    list_lengths,
    round_length,
)
from amazon_electra.model.finetuning.network import open_autocast, select_inputs
from amazon_electra.model.runtime import Checkpoints, Run, State, copy_tensors, restore_tensors

BEST, CUDA = "best.", "random_cuda."
"""Prefixes of the names of the best weights, and of random numbers of GPUs."""


@dataclass
class Attempt:
    """The outcome of one learning rate."""

    learning_rate: float
    dev: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    best_step: int = 0
    examples_per_second: float = 0.0
    diverged: bool = False
    """True where loss, weights or score were no numbers; the best state before that stays."""
    state: dict[str, Tensor] = field(default_factory=dict, repr=False)
    """The weights that were best on dev; empty where training diverged before."""
    losses: list[Tensor] = field(default_factory=list, repr=False)
    """Losses of the steps since the last evaluation."""

    def summarize(self) -> dict[str, Any]:
        return {n: value for n, value in vars(self).items() if n not in ("state", "losses")}


def build_optimizer(
    learning: nn.ModuleList, settings: FinetuningSettings, learning_rate: float, fused: bool
) -> torch.optim.AdamW:
    """Return AdamW, whose rate falls from the head down (google: no decay on norms and biases)."""
    config: Any = learning[0].config
    depth = count_layers(config)
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


def freeze_layers(model: nn.Module, share: float) -> None:
    """Have the embeddings and this share of the layers, the lowest, keep their weights."""
    config: Any = model.config
    depth = count_layers(config)
    frozen = round(share * depth)
    for name, parameter in model.named_parameters() if frozen else ():
        parameter.requires_grad_(count_decays(name, depth) <= depth + 1 - frozen)


def count_layers(config: Any) -> int:
    return int(getattr(config, "num_hidden_layers", getattr(config, "n_layers", 12)))


def count_decays(name: str, depth: int) -> int:
    """Return how often a rate decays: head 0, top layer 2, embeddings depth + 2 (google)."""
    parts = name.split(".")
    for before, part in itertools.pairwise(parts):
        if before in ("layer", "layers", "h") and part.isdigit():
            return depth + 1 - int(part)
    return depth + 2 if "embeddings" in name else 0


def set_learning_rate(optimizer: Any, step: int, steps: int, warmup: float) -> None:
    """Set the rates of a step: linear up over the warm-up share, then linear to 0."""
    rising = max(1, round(steps * warmup)) if warmup else 0
    share = (step + 1) / rising if step < rising else (steps - step) / max(1, steps - rising)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share


def get_learning_rate(optimizer: torch.optim.Optimizer) -> float:
    """Return the highest rate of all layers, that of the head."""
    return max(group["lr"] for group in optimizer.param_groups)


def compute_classification_loss(
    logits: Tensor,
    labels: Tensor,
    config: FinetuningSettings,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the mean loss of logits [..., classes] against labels [...], IGNORED where there is
    none. Focal loss is α · (1 − p)^γ · −log p of the true class, α that class's weight (Lin et al.
    2017, eq. 5).
    """
    logits, labels = logits.float().flatten(0, -2), labels.flatten()
    each = F.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
    known = (labels != IGNORED).float()
    weight = known if weights is None else known * weights[labels.clamp(min=0)]
    if config.loss == "focal":
        each = (1.0 - torch.exp(-each)) ** config.focal_gamma * each
        if alphas := config.focal_alpha:
            if len(alphas) == 1:  # of the second of two classes, the first has the rest
                alphas = (1.0 - alphas[0], alphas[0])
            each = torch.tensor(alphas, device=each.device)[labels.clamp(min=0)] * each
    return (each * weight).sum() / weight.sum().clamp(min=1e-12)


def balance_class_weights(labels: np.ndarray, classes: int) -> Tensor:
    """Return weights inverse to the classes' frequencies, 1 on average; unseen ones get 0."""
    counts = np.bincount(labels[labels >= 0], minlength=classes).astype(np.float64)
    weights = np.divide(counts.sum(), len(counts) * counts, out=np.zeros(classes), where=counts > 0)
    return torch.tensor(weights, dtype=torch.float32)


EVALUATIONS = 5
"""Evaluations on dev in a training: with few labels more cost as much as the training."""
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
    report: Callable[[int, dict[str, Any]], None] = lambda step, numbers: None
    """Called with the step and numbers to log."""
    show_step: Callable[[int], None] = lambda step: None
    """Called with the number of steps done, after each."""
    class_weights: Tensor | None = None
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
    """Return the attempt with the best state; a training that was killed goes on where it was."""
    run = _Run(model, training, learning_rate)
    run.run()
    return run.attempt


class _Run(Run):
    """A training with one learning rate."""

    def __init__(self, model: nn.Module, training: TrainingSetup, learning_rate: float) -> None:
        self.model, self.training, self.device = model, training, training.device
        self.attempt = Attempt(learning_rate)
        self.learning = nn.ModuleList([model, *([training.loss] if training.loss else [])])
        self.optimizer = build_optimizer(
            self.learning, training.settings, learning_rate, self.device.fused_optimizer
        )
        self.checkpoints = Checkpoints(training.checkpoint) if training.checkpoint else None
        if self.checkpoints and (state := self.checkpoints.find(self.device)):
            self._resume(state)
        self.batches = itertools.islice(_stream_batches(training), self.attempt.steps, None)
        self.started, self.seen = time.perf_counter(), 0

    def is_over(self) -> bool:
        return self.attempt.diverged or self.attempt.steps >= self.training.steps

    def take_step(self) -> None:
        training, attempt = self.training, self.attempt
        members, pad_to = next(self.batches)
        set_learning_rate(self.optimizer, attempt.steps, training.steps, training.settings.warmup)
        loss = _train_step(self.model, training, self.optimizer, members, pad_to)
        attempt.losses.append(loss)
        attempt.steps, self.seen = attempt.steps + 1, self.seen + len(members)
        attempt.examples_per_second = self.seen / (time.perf_counter() - self.started)
        training.show_step(attempt.steps)

    def review_step(self, keeps: bool, stopping: bool) -> None:
        """Measure on dev where that is due; keep a better state, or find that it has diverged."""
        attempt, training = self.attempt, self.training
        if attempt.steps % training.evaluate_every and attempt.steps != training.steps:
            return
        loss = float(torch.stack(attempt.losses).mean())
        attempt.losses = []
        # the last gradient may have been no number, although the loss was one
        finite = torch.stack([one.isfinite().all() for one in self.model.parameters()]).all()
        is_finite = math.isfinite(loss) and bool(finite)
        dev = training.score_dev(self.model) if is_finite else {}
        if not is_finite or (dev and rank_dev_metrics(dev)[0] == -math.inf):
            attempt.diverged = True
            return
        numbers = {"train_loss": loss, "learning_rate": get_learning_rate(self.optimizer)}
        training.report(attempt.steps, numbers | {f"dev_{n}": value for n, value in dev.items()})
        is_better = rank_dev_metrics(dev) > rank_dev_metrics(attempt.dev)
        if not (attempt.state and dev) or is_better:
            attempt.dev, attempt.best_step = dev, attempt.steps
            weights = self.model.state_dict().items()
            attempt.state = {name: tensor.detach().cpu().clone() for name, tensor in weights}

    def copy_state(self) -> State:
        """Copy what a training goes on from; of one that is over the best state alone."""
        attempt, cuda = self.attempt, torch.cuda.is_available()
        tensors = {f"{BEST}{name}": tensor.contiguous() for name, tensor in attempt.state.items()}
        if not self.is_over():
            tensors |= copy_tensors(self.learning, self.optimizer)
            losses = torch.stack(attempt.losses).cpu() if attempt.losses else torch.empty(0)
            tensors |= {"losses": losses, "random": torch.get_rng_state()}
            states = torch.cuda.get_rng_state_all() if cuda else []
            tensors |= {f"{CUDA}{device}": state for device, state in enumerate(states)}
        return State(attempt.steps, tensors, {"attempt": attempt.summarize()})

    def _resume(self, state: State) -> None:
        tensors = state.tensors
        best = {n.removeprefix(BEST): t for n, t in tensors.items() if n.startswith(BEST)}
        self.attempt = Attempt(**state.numbers["attempt"], state=best)
        if self.is_over():
            return
        restore_tensors(tensors, self.learning, self.optimizer, self.device)
        torch.set_rng_state(tensors["random"])
        if cuda := [tensors[f"{CUDA}{i}"] for i in range(len(tensors)) if f"{CUDA}{i}" in tensors]:
            torch.cuda.set_rng_state_all(cuda)
        self.attempt.losses = list(tensors["losses"].to(self.device.torch))


def _stream_batches(training: TrainingSetup) -> Iterator[tuple[np.ndarray, int]]:
    """Yield indices of a batch and the tokens it is padded to, without end, the same by seed."""
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
) -> Tensor:
    model.train()
    batch = [training.features[i] for i in members]
    collated, targets = collate_features(batch, training.shape, pad_to, training.pad_id)
    inputs = training.device.put(collated | {"targets": targets})
    targets = inputs.pop("targets")
    with open_autocast(training.device):
        if training.loss:
            loss = training.loss(model, inputs, targets, members)
        else:
            loss = compute_supervised_loss(model(**select_inputs(model, inputs)), targets, training)
    loss.backward()
    if training.settings.clip:
        nn.utils.clip_grad_norm_(model.parameters(), training.settings.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    training.device.end_step()
    return loss.detach()


def compute_supervised_loss(output: Any, targets: Tensor, training: TrainingSetup) -> Tensor:
    if training.shape == "span":  # [batch, 2] tokens; 0 ([CLS]) for no answer
        ends = zip((output.start_logits, output.end_logits), targets.unbind(1), strict=True)
        return torch.stack([F.cross_entropy(logits.float(), one) for logits, one in ends]).mean()
    if training.shape == "regression":
        return F.mse_loss(output.logits.float().squeeze(-1), targets.float())
    if training.shape == "multilabel":
        return F.binary_cross_entropy_with_logits(output.logits.float(), targets.float())
    return compute_classification_loss(
        output.logits, targets, training.settings, training.class_weights
    )
