"""The loop: batches in, optimizer steps, a line for the log, a checkpoint; it stops when told to and loses nothing."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from model import checkpoint
from model.device import Device
from model.metrics_log import MetricsLog
from model.presets import PretrainingConfig
from model.pretraining import optimizer as optimizers
from model.pretraining.batches import Arrays, Batches, ahead, split
from model.pretraining.electra import Electra, Sums
from model.progress import Progress, progress

EXIT_TERMINATED = 128 + signal.SIGTERM
EXPLODED = 2.0  # times the loss at the start, when the networks knew nothing


class Diverged(RuntimeError):
    """The loss is not a number any more, or far above where it began."""


@dataclass
class Totals:
    """What a run has done so far, over all processes and all restarts."""

    step: int = 0
    sequences: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    first_loss: float = 0.0


@dataclass
class Training:
    """Everything one run needs; `train` moves it forward."""

    config: PretrainingConfig
    model: Electra
    device: Device
    batches: Batches
    folder: Path
    identity: dict[str, Any]
    flops_per_sequence: float
    totals: Totals = field(default_factory=Totals)
    validate: Callable[[], dict[str, float]] | None = None
    stopping: bool = False

    def __post_init__(self) -> None:
        self.optimizer = optimizers.build(self.model, self.config, self.device.fused_optimizer)
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"


def train(training: Training) -> None:
    """Runs to the last step, or to a SIGTERM: then a checkpoint is written and the process leaves with 143."""
    config, totals = training.config, training.totals
    previous = signal.signal(signal.SIGTERM, lambda number, frame: _ask_to_stop(training, number, frame))
    log = MetricsLog(training.folder, after_step=totals.step) if training.device.is_first else None
    steps = ahead(training.batches.steps(totals.step))
    try:
        with progress(config.steps, "steps", "pre-training", done=totals.step) as shown:
            _run_steps(training, steps, log, shown)
    finally:
        steps.close()  # type: ignore[attr-defined]
        signal.signal(signal.SIGTERM, previous)


def _ask_to_stop(training: Training, number: int, frame: FrameType | None) -> None:
    training.stopping = True


def _run_steps(training: Training, steps: Iterator[Arrays], log: MetricsLog | None, shown: Progress) -> None:
    config, totals, device = training.config, training.totals, training.device
    training.model.train()
    window = Window(device)
    cpu_before = time.process_time()
    while totals.step < config.steps:
        arrays = next(steps)
        window.add(step(training, arrays))
        totals.step += 1
        totals.sequences += config.batch
        totals.tokens += int(arrays["real_total"])
        totals.flops += config.batch * training.flops_per_sequence
        last = totals.step == config.steps
        keeping = totals.step % config.checkpoint_every == 0 or last or training.stopping
        if totals.step % config.log_every == 0 or keeping:
            numbers = window.close(training)
            totals.seconds += numbers.pop("window_seconds")
            totals.cpu_seconds += time.process_time() - cpu_before
            cpu_before = time.process_time()
            _log(training, log, shown, numbers)
        if training.validate and (last or (config.validate_every and totals.step % config.validate_every == 0)):
            _log_validation(training, log)
            window.restart_clock()
        if keeping:
            save(training)
        if training.stopping and not last:
            raise SystemExit(EXIT_TERMINATED)


def step(training: Training, arrays: Arrays) -> Sums:
    """One optimizer step on this process's share of a batch; returns the sums for the log, still on the device."""
    config, device = training.config, training.device
    device.seed(config.seed * 1_000_003 + training.totals.step)
    rate = optimizers.learning_rate(config, (training.totals.step + 1) / (config.steps + 1))
    for group in training.optimizer.param_groups:
        group["lr"] = rate
    sums: Sums = {}
    for number, part in enumerate(split(arrays, config.device_batch or len(arrays["input_ids"]))):
        training.model.noise.begin(config.seed, training.totals.step, number * device.ranks + device.rank)
        result = training.model(device.put(part))
        result.loss.backward()
        sums = {name: value + sums[name] if name in sums else value for name, value in result.sums.items()}
    device.add_over_processes(p.grad for p in training.model.parameters() if p.grad is not None)
    sums["gradient_norm"] = nn.utils.clip_grad_norm_(training.model.parameters(), config.clip).detach()
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)
    device.end_step()
    return sums


class Window:
    """Sums of the steps since the last log line; they stay on the device until they are read."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sums: Sums = {}
        self._steps = 0
        self._started = time.monotonic()

    def restart_clock(self) -> None:
        self._started = time.monotonic()

    def add(self, sums: Sums) -> None:
        self._sums = {name: value + self._sums[name] if self._sums else value for name, value in sums.items()}
        self._steps += 1

    def close(self, training: Training) -> dict[str, float]:
        """The window's means and rates; a new window begins."""
        shared = {name: value for name, value in self._sums.items() if name != "gradient_norm"}
        self._device.add_over_processes(shared.values())
        read = {name: float(value.item()) for name, value in (shared | self._sums).items()}
        seconds = time.monotonic() - self._started
        norm = read.pop("gradient_norm") / self._steps
        numbers = training.model.describe(read)
        totals = training.totals
        totals.first_loss = totals.first_loss or numbers["loss"]
        finite = all(math.isfinite(number) for number in (norm, *numbers.values()))
        if not finite or numbers["loss"] > EXPLODED * totals.first_loss:
            raise Diverged(_advice(training, "not a number" if not finite else f"{numbers['loss']:.4g}"))
        tokens = read["real"] / seconds
        numbers |= {"gradient_norm": norm, "tokens_per_second": tokens, "window_seconds": seconds}
        numbers["sequences_per_second"] = self._steps * training.config.batch / seconds
        self._sums, self._steps, self._started = {}, 0, time.monotonic()
        return numbers


def _advice(training: Training, loss: str) -> str:
    kept = [path.name for path in checkpoint.found(training.checkpoints)]
    return (
        f"the loss was {loss} within the {training.config.log_every} steps before step {training.totals.step}; "
        f"kept: {kept[-1] if kept else 'no checkpoint yet'}. "
        "Try a lower learning_rate, a longer warmup or precision=fp32"
    )


def _log(training: Training, log: MetricsLog | None, shown: Progress, numbers: dict[str, float]) -> None:
    totals = training.totals
    numbers["learning_rate"] = training.optimizer.param_groups[0]["lr"]
    if log:
        log.log(totals.step, **numbers, tokens=totals.tokens, flops=totals.flops)
    told = {name: numbers[name] for name in ("generator_loss", "discriminator_loss") if name in numbers}
    shown.update(totals.step, **told, tokens_per_second=round(numbers["tokens_per_second"]))


def _log_validation(training: Training, log: MetricsLog | None) -> None:
    assert training.validate is not None
    numbers = training.validate()
    if log:
        log.log(training.totals.step, **numbers)
    training.model.train()


def save(training: Training) -> None:
    """A checkpoint of this moment; only process 0 writes, all hold the same state."""
    if not training.device.is_first:
        return
    folder = training.checkpoints
    state = checkpoint.State(training.totals.step, _tensors(training), _numbers(training))
    checkpoint.save(folder, state)
    checkpoint.prune(folder, training.config.keep_checkpoints)


def _numbers(training: Training) -> dict[str, Any]:
    """Position in the data and random state are functions of step and seed: nothing else has to be kept."""
    return {"totals": vars(training.totals).copy(), "identity": training.identity}


def _tensors(training: Training) -> dict[str, Tensor]:
    tensors = {f"model.{name}": parameter for name, parameter in training.model.named_parameters()}
    for parameter, moments in training.optimizer.state.items():
        for kind, tensor in moments.items():
            tensors[f"optimizer.{kind}.{training.names[parameter]}"] = tensor
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}


def restore(training: Training, state: checkpoint.State) -> None:
    """Puts a checkpoint's state into the model and the optimizer."""
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            parameter.copy_(state.tensors[f"model.{name}"])
            training.optimizer.state[parameter] = {
                kind: state.tensors[f"optimizer.{kind}.{name}"].to(parameter.device if kind != "step" else "cpu")
                for kind in ("step", "exp_avg", "exp_avg_sq")
                if f"optimizer.{kind}.{name}" in state.tensors
            }
    for name, value in state.numbers["totals"].items():
        setattr(training.totals, name, value)
