"""Runs the training loop: optimizer steps, log lines, validations, checkpoints.

A SIGTERM ends it with a checkpoint, so that nothing is lost.
"""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from beam_jobs.job.progress import Progress, track_progress
from model.config import PretrainingConfig
from model.device import Device
from model.pretraining import checkpoint
from model.pretraining import optimizer as optimizers
from model.pretraining.adaptation.anchor import Anchor
from model.pretraining.adaptation.choice import ACCURACY, Choice
from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.adaptation.probe import Probe
from model.pretraining.collapse import describe_collapse
from model.pretraining.input.batches import Arrays, Batches, TwoLengths, prefetch
from model.pretraining.network.encoder import Layer
from model.pretraining.network.flops import MatrixFlops
from model.pretraining.network.masked_prediction import Batch, PretrainingModel, Step
from model.pretraining.step import run_step
from model.pretraining.validation import VALIDATIONS, Validation
from model.pretraining.window import Window
from model.processes.gradient_sum import GradientSum
from model.tracking.metrics_log import MetricsLog

EXIT_TERMINATED = 128 + signal.SIGTERM
SHOWN = ("generator_loss", "discriminator_loss", "mlm_loss")  # beside the progress bar
EXPLODED = 3.0  # times the loss at the start, when the networks knew nothing


class Diverged(RuntimeError):
    """The loss is not a number any more, or is far above where it began."""


@dataclass
class Totals:
    """What a run has done so far, over all processes and all restarts."""

    step: int = 0
    sequences: int = 0
    tokens: int = 0
    flops: float = 0.0  # by the published count
    matrix_flops: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of training alone
    measuring_cpu_seconds: float = 0.0  # of validations and probes
    first_loss: float = 0.0
    best_loss: float = math.inf  # of the validations
    best_step: int = -1  # of the state to write by the probe where there is one, else by the loss
    probed_step: int = -1


@dataclass
class Training:
    """Everything one run needs; `train` moves it forward."""

    config: PretrainingConfig
    model: PretrainingModel
    device: Device
    batches: Batches | TwoLengths
    folder: Path
    identity: dict[str, Any]
    count_published_flops: Callable[[int], float]  # of a sequence of so many tokens
    matrix_flops: MatrixFlops
    length: int  # tokens of a sequence, until longer ones come
    trained_length: int  # tokens; of the longest sequences here, or of longer ones before
    budget_seconds: float | None = None
    validation: Validation | None = None
    adaptation: AdaptationConfig = field(default_factory=AdaptationConfig)
    start: dict[str, Any] = field(default_factory=dict)  # what is known of the loaded weights
    anchor: Anchor | None = None  # the loaded weights, where something needs them
    probe: Probe | None = None
    choice: Choice = field(default_factory=Choice)  # of the probe, in the processes that take it
    gradient_type: torch.dtype = torch.float32
    """In which gradients travel between processes."""
    totals: Totals = field(default_factory=Totals)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.optimizer = optimizers.build_optimizer(
            self.model, self.config, self.device.fused_optimizer, self.adaptation
        )
        self.parameters = list(self.model.parameters())  # not a walk over all modules each step
        self.device_batch_given = self.config.device_batch
        self.gradient_sum = (
            GradientSum(self.model.parameters(), self.device, self.gradient_type)
            if self.device.world_size > 1 and not self.device.moves_together
            else None
        )
        self.forward = self._compile_forward()
        self.writer = checkpoint.CheckpointWriter(
            self.folder / "checkpoints", self.config.keep_checkpoints
        )
        self.clock_started, self.seconds_before = time.monotonic(), 0.0

    def _compile_forward(self) -> Callable[[Batch], Step]:
        """Return the model's step, compiled where that pays; where gradients are summed meanwhile
        layer by layer: a compiled model has none of them before it has all.
        """
        if not (self.config.compile and self.device.compiles):
            return self.model
        if self.gradient_sum is None:
            return torch.compile(self.model)
        for part in self.model.modules():
            if isinstance(part, Layer):
                part.compile()
        return self.model

    def measure_elapsed(self) -> float:
        """Return the seconds of all runs so far, the same in every process."""
        elapsed = self.seconds_before + time.monotonic() - self.clock_started
        return self.device.all_reduce_max(elapsed)[0]

    def is_stopping(self) -> bool:
        """Return whether any process was told to stop."""
        return self.device.all_reduce_max(self.stopping)[0] > 0

    def count_matrix_flops(self, arrays: Arrays) -> float:
        """Return the operations of one step, over all processes, as this device computes it."""
        length, slots = (arrays[name].shape[1] for name in ("input_ids", "masked_positions"))
        sequences = self.config.batch
        within = float(arrays["squared_total"])
        pairs = within if self.device.has_document_attention else sequences * length**2
        return self.matrix_flops.count(sequences * length, pairs, sequences * slots)

    def count_sequences_at_once(self, arrays: Arrays) -> int:
        """Return how many sequences the device takes at once: of longer ones as many tokens."""
        sequences, length = arrays["input_ids"].shape
        most = (self.config.device_batch or sequences) * self.length // length
        whole = math.gcd(sequences, self.count_sequences_of_one(arrays))
        return next(n for n in range(max(1, most), 0, -1) if whole % n == 0)

    def count_sequences_of_one(self, arrays: Arrays) -> int:
        """Return how many sequences a process would take at once that were alone and had the
        memory for what was set: those that share a window of the dropout's random numbers.
        """
        batch, length = self.config.batch, arrays["input_ids"].shape[1]
        most = (self.device_batch_given or batch) * self.length // length
        return next(n for n in range(max(1, most), 0, -1) if batch % n == 0)

    def compute_progress(self) -> float:
        """Return the share of the run that lies behind the next step, 0 to 1."""
        if self.budget_seconds is not None:
            return min(1.0, self.measure_elapsed() / self.budget_seconds)
        return (self.totals.step + 1) / (self.config.steps + 1)

    def is_validation_due(self) -> bool:
        """Return whether the state of this step is measured: ten times where `validate_every` says
        nothing, a probe before the first step too.
        """
        step, every = self.totals.step, self.config.validate_every
        if every:
            return step % every == 0
        if self.budget_seconds is not None or not (self.probe or self.validation):
            return False
        return (
            VALIDATIONS * step // self.config.steps > VALIDATIONS * (step - 1) // self.config.steps
        )

    def is_over(self) -> bool:
        if self.budget_seconds is not None:
            return self.totals.step > 0 and self.measure_elapsed() >= self.budget_seconds
        return self.totals.step >= self.config.steps


def train(training: Training) -> None:
    """Train to the end, or to a SIGTERM: then write a checkpoint and exit with status 143."""
    totals, budget = training.totals, training.budget_seconds
    previous = signal.signal(signal.SIGTERM, lambda *_: setattr(training, "stopping", True))
    log = (
        MetricsLog(training.folder, after_step=totals.step or None)
        if training.device.is_rank0
        else None
    )
    steps = prefetch(training.batches.iterate_steps(totals.step))
    training.clock_started, training.seconds_before = time.monotonic(), totals.seconds
    try:
        total, unit = (training.config.steps, "steps") if budget is None else (round(budget), "s")
        with track_progress(
            total,
            unit,
            "pre-training",
            done=totals.step if budget is None else round(totals.seconds),
        ) as bar:
            _probe_start(training, log)
            _run_steps(training, steps, log, bar)
    finally:
        steps.close()
        training.writer.wait()
        signal.signal(signal.SIGTERM, previous)


def _run_steps(
    training: Training, steps: Iterator[Arrays], log: MetricsLog | None, bar: Progress
) -> None:
    config, totals = training.config, training.totals
    training.model.train()
    window = Window(training.device)
    over = training.is_over()
    while not over:
        arrays = next(steps)
        taken = run_step(training, arrays)
        if taken:
            matrix_flops = training.count_matrix_flops(arrays)
            window.add(*taken, matrix_flops)
            totals.step += 1
            totals.sequences += config.batch
            totals.tokens += int(arrays["real_total"])
            length = arrays["input_ids"].shape[1]
            totals.flops += config.batch * training.count_published_flops(length)
            totals.matrix_flops += matrix_flops
        over, stopping = training.is_over(), training.is_stopping()
        keeping = over or stopping or totals.step % config.checkpoint_every == 0
        validating = over or training.is_validation_due()
        if window.steps and (keeping or validating or totals.step % config.log_every == 0):
            _log_window(training, log, bar, window)
        if keeping or validating:
            measuring = validating and (over or not stopping)
            window.pause(*_validate_and_save(training, log, measuring, keeping))
        if stopping and not over:
            training.writer.wait()
            raise SystemExit(EXIT_TERMINATED)


def _log_window(training: Training, log: MetricsLog | None, bar: Progress, window: Window) -> None:
    """Log the window's means and rates; raise Diverged before bad weights are kept."""
    totals, config, device = training.totals, training.config, training.device
    steps, seconds = window.steps, window.measure_seconds()
    cpu = device.add_numbers(window.measure_cpu_seconds())[0]
    flops = window.matrix_flops
    sums, norm = window.read_sums()
    totals.cpu_seconds += cpu
    totals.seconds = training.measure_elapsed()
    numbers = training.model.compute_means(sums)
    totals.first_loss = totals.first_loss or numbers["loss"]
    if not all(math.isfinite(number) for number in (norm, *numbers.values())):
        raise _build_divergence(training, "not a number")
    if numbers["loss"] > EXPLODED * totals.first_loss:
        was = f"{numbers['loss']:.4g}, at the start {totals.first_loss:.4g}"
        raise _build_divergence(training, was)
    numbers |= {
        "gradient_norm": norm,
        "learning_rate": max(group["lr"] for group in training.optimizer.param_groups),
        "tokens_per_second": sums["real"] / seconds,
        "sequences_per_second": steps * config.batch / seconds,
        "flops_utilization": flops / seconds / device.measure_peak_flops() / device.world_size,
        "checkpoint_wait_seconds": training.writer.take_wait_seconds(),
        "peak_memory_mb": device.measure_memory_mb(),
        "cpu_utilization": cpu / seconds,
        "tokens": totals.tokens,
        "flops": totals.flops,
        "matrix_flops": totals.matrix_flops,
    }
    if log:
        log.log(totals.step, **numbers)
    done = totals.step if training.budget_seconds is None else round(totals.seconds)
    shown = {name: numbers[name] for name in SHOWN if name in numbers}
    bar.update(done, **shown, tokens_per_second=round(numbers["tokens_per_second"]))


def _probe_start(training: Training, log: MetricsLog | None) -> None:
    """Probe the loaded weights, or the state that is continued if a SIGTERM came before that."""
    totals = training.totals
    if training.probe and totals.probed_step != totals.step and training.is_validation_due():
        _validate_and_save(training, log, validating=True, keeping=False)


def _build_divergence(training: Training, loss: str) -> Diverged:
    training.writer.wait()
    kept = [path.name for path in checkpoint.list_checkpoints(training.writer.folder)]
    return Diverged(
        f"the loss was {loss} in the {training.config.log_every} steps up to step "
        f"{training.totals.step}; the last good state is {kept[-1] if kept else 'the beginning'}. "
        "Try a lower learning_rate, a longer warmup or precision=fp32, in another --output"
    )


def _validate_and_save(
    training: Training, log: MetricsLog | None, validating: bool, keeping: bool
) -> tuple[float, float]:
    """Validate and begin to write a checkpoint, as asked; return the seconds it took, and the CPU
    seconds of this process.

    A state that validates better than all before is kept even if no checkpoint was due.
    """
    started, cpu_started = time.monotonic(), time.process_time()
    totals = training.totals
    if validating:
        numbers = _measure_state(training)
        if log and numbers:
            log.log(totals.step, **numbers)
            _warn(describe_collapse(totals.step, numbers))
        keeping = _is_best(training, numbers) or keeping
        if log and ACCURACY in numbers:
            _warn(training.choice.describe_fall(totals.step))
        took = training.device.add_numbers(time.process_time() - cpu_started)[0]
        totals.measuring_cpu_seconds += took
    if keeping and training.device.is_rank0:
        training.writer.write(copy_state(training), totals.best_step)
    return time.monotonic() - started, time.process_time() - cpu_started


def _measure_state(training: Training) -> dict[str, float]:
    """Return the measures on dev shards, the same in every process, and what the probe says.

    A SIGTERM cuts the former short; the probe, which decides what is written, is short itself.
    """
    numbers: dict[str, float] = {}
    model, device, totals = training.model, training.device, training.totals
    if training.validation and totals.step:
        numbers |= training.validation(model, device, lambda: training.stopping)
    if training.probe and training.anchor:
        totals.probed_step = totals.step
        if device.is_needed:
            with training.anchor.averaged(training.adaptation.origin_average):
                judged = training.probe(model, device)
                training.choice.note(judged, training.adaptation, totals.tokens)
            numbers[ACCURACY] = training.choice.last_accuracy
    return numbers


def _is_best(training: Training, numbers: dict[str, float]) -> bool:
    """Note the measures; return whether this is the state to write, as it is now."""
    totals = training.totals
    loss = numbers.get("validation_loss", math.inf)
    is_lowest, totals.best_loss = loss < totals.best_loss, min(loss, totals.best_loss)
    is_best = is_lowest
    if training.probe:
        is_best = ACCURACY in numbers and training.choice.is_last_chosen
        totals.best_step = max(totals.best_step, 0)  # the loaded weights
    totals.best_step = totals.step if is_best else totals.best_step
    return is_best


def _warn(warning: str | None) -> None:
    if warning:
        print(warning, file=sys.stderr)


def copy_state(training: Training) -> checkpoint.State:
    """Copy the state of this moment to the CPU.

    The position in the data and all random numbers are functions of the step and the seed, so the
    step is all that has to be kept of them.
    """
    numbers = {
        "totals": vars(training.totals).copy(),
        "choice": vars(training.choice).copy(),
        "identity": training.identity,
        "seed": training.config.seed,
    }
    tensors = checkpoint.copy_tensors(training.model, training.optimizer)
    return checkpoint.State(training.totals.step, tensors, numbers)


def restore_state(training: Training, state: checkpoint.State) -> None:
    """Put a checkpoint's state into the model, the optimizer and the totals."""
    is_fused = training.device.fused_optimizer
    checkpoint.restore_tensors(state.tensors, training.model, training.optimizer, is_fused)
    for holder, key in ((training.totals, "totals"), (training.choice, "choice")):
        for name, value in state.numbers.get(key, {}).items():
            setattr(holder, name, value)
