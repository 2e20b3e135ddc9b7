"""The loop: batches in, optimizer steps, a line for the log, a checkpoint; it stops when told to and loses nothing."""

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from model import checkpoint
from model.device import Device
from model.metrics_log import MetricsLog
from model.presets import PretrainingConfig
from model.pretraining import optimizer as optimizers
from model.pretraining.batches import Arrays, Batches, ahead, split
from model.pretraining.electra import Sums
from model.pretraining.validation import Model, Validation
from model.pretraining.window import Window
from model.progress import Progress, progress

EXIT_TERMINATED = 128 + signal.SIGTERM
EXPLODED = 3.0  # times the loss at the start, when the networks knew nothing


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
    best_loss: float = math.inf  # of the validations
    best_step: int = -1


@dataclass
class Training:
    """Everything one run needs; `train` moves it forward."""

    config: PretrainingConfig
    model: Model
    device: Device
    batches: Batches
    folder: Path
    identity: dict[str, Any]
    flops_per_sequence: float
    products_per_sequence: float  # what utilization counts: flops.matrix_flops
    budget_seconds: float | None = None
    validation: Validation | None = None
    totals: Totals = field(default_factory=Totals)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.optimizer = optimizers.build(self.model, self.config, self.device.fused_optimizer)
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        self.forward = torch.compile(self.model) if self.config.compile and self.device.compiles else self.model
        self.writer = checkpoint.Writer(self.folder / "checkpoints", self.config.keep_checkpoints)
        self.clock_started, self.seconds_before = time.monotonic(), 0.0

    def elapsed(self) -> float:
        """Seconds of all runs so far; every process is told the same."""
        return self.device.from_first(self.seconds_before + time.monotonic() - self.clock_started)

    def progress(self) -> float:
        """0 to 1: how much of the run lies behind the step that comes."""
        if self.budget_seconds is not None:
            return min(1.0, self.elapsed() / self.budget_seconds)
        return (self.totals.step + 1) / (self.config.steps + 1)

    def is_over(self) -> bool:
        if self.budget_seconds is not None:
            return self.totals.step > 0 and self.elapsed() >= self.budget_seconds
        return self.totals.step >= self.config.steps


def train(training: Training) -> None:
    """Runs to the end, or to a SIGTERM: then a checkpoint is written and the process leaves with 143."""
    totals, budget = training.totals, training.budget_seconds
    previous = signal.signal(signal.SIGTERM, lambda *_: setattr(training, "stopping", True))
    log = MetricsLog(training.folder, after_step=totals.step) if training.device.is_first else None
    steps = ahead(training.batches.steps(totals.step))
    training.clock_started, training.seconds_before = time.monotonic(), totals.seconds
    try:
        total, unit = (training.config.steps, "steps") if budget is None else (round(budget), "s")
        with progress(
            total, unit, "pre-training", done=totals.step if budget is None else round(totals.seconds)
        ) as bar:
            _run_steps(training, steps, log, bar)
    finally:
        steps.close()
        training.writer.wait()
        signal.signal(signal.SIGTERM, previous)


def _run_steps(training: Training, steps: Iterator[Arrays], log: MetricsLog | None, bar: Progress) -> None:
    config, totals = training.config, training.totals
    training.model.train()
    window = Window(training.device)
    over = training.is_over()
    while not over:
        arrays = next(steps)
        taken = step(training, arrays)
        if taken:
            window.add(*taken)
            totals.step += 1
            totals.sequences += config.batch
            totals.tokens += int(arrays["real_total"])
            totals.flops += config.batch * training.flops_per_sequence
        over, stopping = training.is_over(), training.device.from_first(training.stopping) > 0
        keeping = over or stopping or totals.step % config.checkpoint_every == 0
        validating = over or (config.validate_every > 0 and totals.step % config.validate_every == 0)
        if window.steps and (keeping or validating or totals.step % config.log_every == 0):
            _log(training, log, bar, window)
        if keeping or validating:
            window.pause(_validate_and_save(training, log, validating and not stopping, keeping))
        if stopping and not over:
            training.writer.wait()
            raise SystemExit(EXIT_TERMINATED)


def step(training: Training, arrays: Arrays) -> tuple[Sums, Tensor] | None:
    """One optimizer step on this process's share of a batch: sums for the log and the gradient's norm, unread. None
    where a SIGTERM came between two parts of it: then nothing has changed."""
    config, device, model = training.config, training.device, training.model
    number = training.totals.step
    device.seed(config.seed * 1_000_003 + number)
    rate = optimizers.learning_rate(config, training.progress())
    for group in training.optimizer.param_groups:
        group["lr"] = rate
    sums: Sums = {}
    for i, part in enumerate(split(arrays, config.device_batch or len(arrays["input_ids"]))):
        if i and training.stopping and device.ranks == 1:
            training.optimizer.zero_grad(set_to_none=True)
            return None
        model.noise.begin(config.seed, number, i * device.ranks + device.rank)
        result = training.forward(device.put(part))
        result.loss.backward()
        sums = {name: value + sums[name] if name in sums else value for name, value in result.sums.items()}
    device.add_over_processes(p.grad for p in model.parameters() if p.grad is not None)
    norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip).detach()
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)
    device.end_step()
    return sums, norm


def _log(training: Training, log: MetricsLog | None, bar: Progress, window: Window) -> None:
    """Writes the window's means and rates; stops a run that has diverged, before its weights are kept."""
    totals, config = training.totals, training.config
    steps, seconds, cpu = window.steps, window.seconds(), window.cpu_seconds()
    sums, norm = window.close()
    totals.cpu_seconds += cpu
    totals.seconds = training.elapsed()
    numbers = training.model.describe(sums)
    totals.first_loss = totals.first_loss or numbers["loss"]
    if not all(math.isfinite(number) for number in (norm, *numbers.values())):
        raise Diverged(_advice(training, "not a number"))
    if numbers["loss"] > EXPLODED * totals.first_loss:
        raise Diverged(_advice(training, f"{numbers['loss']:.4g}, at the start {totals.first_loss:.4g}"))
    sequences = steps * config.batch / seconds
    numbers |= {
        "gradient_norm": norm,
        "learning_rate": training.optimizer.param_groups[0]["lr"],
        "tokens_per_second": sums["real"] / seconds,
        "sequences_per_second": sequences,
        "flops_utilization": sequences * training.products_per_sequence / training.device.peak_flops(),
        "checkpoint_wait_seconds": training.writer.take_waited(),
        "peak_memory_mb": training.device.memory_mb(),
        "cpu_utilization": cpu / seconds,
        "tokens": totals.tokens,
        "flops": totals.flops,
    }
    if log:
        log.log(totals.step, **numbers)
    shown = {name: numbers[name] for name in ("generator_loss", "discriminator_loss", "mlm_loss") if name in numbers}
    done = totals.step if training.budget_seconds is None else round(totals.seconds)
    bar.update(done, **shown, tokens_per_second=round(numbers["tokens_per_second"]))


def _advice(training: Training, loss: str) -> str:
    training.writer.wait()
    kept = [path.name for path in checkpoint.found(training.writer.folder)]
    return (
        f"the loss was {loss} in the {training.config.log_every} steps up to step {training.totals.step}; "
        f"the last good state is {kept[-1] if kept else 'the beginning'}. "
        "Try a lower learning_rate, a longer warmup or precision=fp32, in another --output"
    )


def _validate_and_save(training: Training, log: MetricsLog | None, validating: bool, keeping: bool) -> float:
    """Seconds it took. A state that validates better than all before is kept even where none was due."""
    started = time.monotonic()
    totals = training.totals
    if validating and training.validation and training.device.is_first:
        numbers = training.validation(training.model, training.device, lambda: training.stopping)
        if log and numbers:
            log.log(totals.step, **numbers)
        if numbers and numbers["validation_loss"] < totals.best_loss:
            totals.best_loss, totals.best_step, keeping = numbers["validation_loss"], totals.step, True
    if keeping and training.device.is_first:
        training.writer.write(state_of(training), totals.best_step)
    return time.monotonic() - started


def state_of(training: Training) -> checkpoint.State:
    """This moment, copied to the CPU. The position in the data and all random numbers are functions of the step and
    the seed, so the step is all that has to be kept of them."""
    tensors = {f"model.{name}": parameter for name, parameter in training.model.named_parameters()}
    for parameter, moments in training.optimizer.state.items():
        for kind, tensor in moments.items():
            tensors[f"optimizer.{kind}.{training.names[parameter]}"] = tensor
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    numbers = {"totals": vars(training.totals).copy(), "identity": training.identity, "seed": training.config.seed}
    return checkpoint.State(training.totals.step, copies, numbers)


def restore(training: Training, state: checkpoint.State) -> None:
    """Puts a checkpoint's state into the model and the optimizer. A fused optimizer counts its steps on the device,
    any other on the CPU."""
    on_cpu = set() if training.device.fused_optimizer else {"step"}
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            parameter.copy_(state.tensors[f"model.{name}"])
            training.optimizer.state[parameter] = {
                kind: state.tensors[f"optimizer.{kind}.{name}"].to("cpu" if kind in on_cpu else parameter.device)
                for kind in ("step", "exp_avg", "exp_avg_sq")
                if f"optimizer.{kind}.{name}" in state.tensors
            }
    for name, value in state.numbers["totals"].items():
        setattr(training.totals, name, value)
