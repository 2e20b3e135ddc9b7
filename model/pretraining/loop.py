"""Trains: steps, log lines, validations, checkpoints; a SIGTERM ends it with a checkpoint."""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.config import AdaptationConfig, PretrainingConfig
from amazon_electra.model.device import Device
from amazon_electra.model.pretraining import checkpoint
from amazon_electra.model.pretraining import optimizer as optimizers
from amazon_electra.model.pretraining.input.batches import Arrays, Batches, prefetch, split_batch
from amazon_electra.model.pretraining.input.masking import count_slots
from amazon_electra.model.pretraining.network.electra import ReplacedHead
from amazon_electra.model.pretraining.network.encoder import Layer
from amazon_electra.model.pretraining.network.masked_prediction import (
    Batch,
    PretrainingModel,
    Step,
    Sums,
    TokenHead,
)
from amazon_electra.model.pretraining.objectives import MatrixFlops, find_objective
from amazon_electra.model.pretraining.step_graphs import CaptureFailed, StepGraphs
from amazon_electra.model.pretraining.validation import VALIDATIONS, Validation, describe_collapse
from amazon_electra.model.processes import name_losses
from amazon_electra.model.tracking.metrics_log import MetricsLog


class LoadedTrunk:
    """A copy of a model's trunk as it was loaded, and its share in the weights that are written."""

    def __init__(self, model: PretrainingModel, share: float) -> None:
        trunk = model.list_trunk_names()
        self._share = share
        self._trained = [tensor for name, tensor in model.named_parameters() if name in trunk]
        self._loaded = [parameter.detach().clone() for parameter in self._trained]

    @torch.no_grad()
    def average(self) -> None:
        """Replace the trunk's weights by the average."""
        for trained, loaded in zip(self._trained, self._loaded, strict=True):
            trained.lerp_(loaded, self._share)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the trunk be averaged inside the block, and bit for bit what it was after it."""
        own = [parameter.detach().clone() for parameter in self._trained]
        self.average()
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, before in zip(self._trained, own, strict=True):
                    parameter.copy_(before)


EXIT_TERMINATED = 128 + signal.SIGTERM
COMPILED = {Layer: ("forward",), ReplacedHead: ("forward",), TokenHead: ("forward", "compute_rows")}
"""Methods that are compiled, each kind once: all but look-ups and what is small."""
EXPLODED = 3.0  # times the loss at the start, when the networks knew nothing


class LossDiverged(RuntimeError):
    """The loss is not a number any more, or is far above where it began."""


class Window:
    """The steps since the last log line; their sums stay on the device until they are read."""

    def __init__(self) -> None:
        self.steps = 0
        self.matrix_flops = 0.0  # over all processes
        self.sums: dict[str, float] = {}  # over all processes, once they are read
        self._sums: Sums = {}
        self._norms: list[Tensor] = []

    def add(self, sums: Sums, gradient_norm: Tensor, matrix_flops: float) -> None:
        """Add the sums of one step, unread."""
        self._sums = {name: v + self._sums[name] if self._sums else v for name, v in sums.items()}
        self._norms.append(gradient_norm)
        self.steps += 1
        self.matrix_flops += matrix_flops

    def read(self, device: Device) -> float:
        """Read the sums; return the mean gradient norm."""
        device.wait()
        device.all_reduce_sum(self._sums.values())
        self.sums = {name: float(value.item()) for name, value in self._sums.items()}
        return float(torch.stack(self._norms).mean().item())


class Meter:
    """The growth of a clock between two calls."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read, self._begun = read, read()

    def take(self) -> float:
        """Return the growth since the last call."""
        begun, self._begun = self._begun, self._read()
        return self._begun - begun


@dataclass
class Totals:
    """Totals of a run, over all processes and all restarts."""

    step: int = 0
    sequences: int = 0
    tokens: int = 0
    matrix_flops: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of training alone
    first_loss: float = 0.0
    best_loss: float = math.inf  # of the validations
    best_step: int = -1  # of that loss


@dataclass
class Training:
    """Everything one run needs; `train` moves it forward."""

    config: PretrainingConfig
    model: PretrainingModel
    device: Device
    batches: Batches
    folder: Path
    identity: dict[str, Any]
    matrix_flops: MatrixFlops
    trained_length: int  # tokens; of the sequences here, or of longer ones before
    budget_seconds: float | None = None
    validation: Validation | None = None
    adaptation: AdaptationConfig = field(default_factory=AdaptationConfig)
    start: dict[str, Any] = field(default_factory=dict)  # what is known of the loaded weights
    loaded: LoadedTrunk | None = None  # where it is averaged with the trained one
    totals: Totals = field(default_factory=Totals)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.optimizer = optimizers.build_optimizer(
            self.model, self.config, self.device.fused_optimizer, self.adaptation
        )
        self.parameters = list(self.model.parameters())  # not a walk over all modules each step
        self.shares_batches = self.device.world_size > 1 and not self.device.moves_together
        self.draw_masks: Callable[[Batch], Batch] = self.batches.draw_masks
        self.forward: Callable[[Batch], Step] = self.model
        self.compiled = False
        self.graphs: StepGraphs | None = None
        compiles = {"auto": self.device.compiles, "on": True, "off": False}[self.config.compile]
        compiles = compiles and self.model.module is None  # else it calls hooks
        if compiles:
            self.compile()
        self.writer = checkpoint.CheckpointWriter(
            self.folder / "checkpoints", self.config.keep_checkpoints
        )
        self.clock_started, self.seconds_before = time.monotonic(), 0.0
        self.meters = Meter(time.monotonic), Meter(time.process_time)

    def compile(self) -> None:
        """Let torch.compile make layers and heads faster, each kind once, and a GPU take each step
        as one CUDA graph. A model compiled whole would take minutes, sum look-ups' gradients in no
        fixed order, and have no gradient to send before it has all. "deterministic" lets no timing
        choose a kernel that rounds otherwise.
        """
        # torch.compile's documentation names it; the import takes seconds
        from torch._inductor import list_options

        self.compiled = True
        self.begin_graphs()
        options = {"deterministic": True} if "deterministic" in list_options() else None
        compile_shapes = partial(torch.compile, dynamic=False, options=options)  # one a network
        self.draw_masks = compile_shapes(self.batches.draw_masks)
        for part in self.model.modules():
            for name in COMPILED.get(type(part), ()):
                setattr(part, name, compile_shapes(getattr(part, name)))

    def begin_graphs(self) -> None:
        """Forget the graphs of earlier steps: they know memory that is no longer used."""
        has_graphs = self.compiled and self.device.kind == "cuda" and not self.shares_batches
        self.graphs = StepGraphs(partial(take_step, self), self.optimizer) if has_graphs else None

    def stop_compiling(self) -> None:
        """Go on with neither compiled code nor graphs."""
        self.compiled, self.graphs = False, None

    def measure_elapsed(self) -> float:
        """Return the seconds of all runs so far, the same in every process."""
        elapsed = self.seconds_before + time.monotonic() - self.clock_started
        return self.device.all_reduce_max(elapsed)[0]

    def count_matrix_flops(self, arrays: Arrays) -> float:
        """Return the operations of one step, over all processes, as this device computes it."""
        length, sequences = arrays["input_ids"].shape[1], self.config.batch
        slots = count_slots(length, self.config.mask_probability)
        within = float(arrays["squared_total"])
        pairs = within if self.device.has_document_attention else sequences * length**2
        return self.matrix_flops.count(sequences * length, pairs, sequences * slots)

    def count_sequences_at_once(self) -> int:
        """Return how many sequences of its share of a batch the device takes at once."""
        share = self.config.batch // self.device.world_size
        most = min(share, self.config.device_batch or share)
        return next(n for n in range(most, 0, -1) if share % n == 0)

    def compute_progress(self) -> float:
        """Return the share of the run that lies behind the next step, 0 to 1."""
        if self.budget_seconds is not None:
            return min(1.0, self.measure_elapsed() / self.budget_seconds)
        return (self.totals.step + 1) / (self.config.steps + 1)

    def is_validation_due(self) -> bool:
        """Return whether the state of this step is measured: ten times by default."""
        step, every = self.totals.step, self.config.validate_every
        if every:
            return step % every == 0
        if self.budget_seconds is not None or not self.validation:
            return False
        return (
            VALIDATIONS * step // self.config.steps > VALIDATIONS * (step - 1) // self.config.steps
        )

    def is_over(self) -> bool:
        if self.budget_seconds is not None:
            return self.totals.step > 0 and self.measure_elapsed() >= self.budget_seconds
        return self.totals.step >= self.config.steps


def run_step(training: Training, arrays: Arrays) -> tuple[Sums, Tensor] | None:
    """Take one step on this process's share of a batch; return sums for the log and the gradient's
    norm, unread, or None if a SIGTERM came between two parts: then nothing has changed.
    """
    progress = training.compute_progress()
    optimizers.set_learning_rates(training.optimizer, training.config.warmup, progress)
    while True:
        failure, seed = "", training.config.seed * 1_000_003 + training.totals.step
        training.device.seed_generators(seed)
        try:  # what was compiled runs uncompiled once that is not wanted
            with nullcontext() if training.compiled else torch.compiler.set_stance("force_eager"):
                if training.shares_batches:
                    _share_gradients(training, arrays)
                parts = _put_parts(training, arrays)
                if training.graphs:
                    if graph := training.graphs.find(parts):
                        return graph.take_step(parts)
                    training.graphs.capture(parts)
                    continue  # seeds the random numbers again
                sums = _add_gradients(training, parts)
            break
        except torch.OutOfMemoryError:
            pass  # what follows is after the block: the error holds the tensors
        except CaptureFailed as error:
            failure, training.graphs = f"a CUDA graph of the step failed ({str(error)[:300]})", None
        except Exception as error:  # of TorchDynamo, Inductor, Triton or gcc
            if not training.compiled or training.config.compile == "on":
                raise
            cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
            failure = f"torch.compile failed ({cause[:300]})"
            training.stop_compiling()
        if failure:
            training.optimizer.zero_grad(set_to_none=True)
            print(f"warning: {failure}; the training goes on without it, slower", file=sys.stderr)
        else:
            _halve_batch(training)
    return _finish_step(training, sums) if sums is not None else None


def _halve_batch(training: Training) -> None:
    """Take half as many sequences at once. UserError for one sequence, and for processes that share
    a batch: the others wait for gradients of this step.
    """
    sequences = training.count_sequences_at_once()
    share = training.config.batch // training.device.world_size
    half = next((n for n in range(sequences // 2, 0, -1) if share % n == 0), 0)
    what = f"{sequences} sequences at once do not fit into the device's memory"
    require(half, f"{what}: take a smaller recipe, or shorter shards")
    why = f"{what}; the same command continues with {half}"
    require(not training.shares_batches, why, "device_batch", half)
    training.optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    training.config = training.config.replace(device_batch=half)
    if training.graphs:
        training.begin_graphs()
    print(f"warning: {what}; device_batch is {half} from here", file=sys.stderr)


def take_step(training: Training, parts: list[Batch]) -> tuple[Sums, Tensor]:
    """Take one optimizer step that nothing stops on parts that lie on the device."""
    sums = _add_gradients(training, parts, can_stop=False)
    assert sums is not None
    return _finish_step(training, sums)


def _finish_step(training: Training, sums: Sums) -> tuple[Sums, Tensor]:
    norm = nn.utils.clip_grad_norm_(training.parameters, training.config.clip).detach()
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)
    training.device.end_step()
    return sums, norm


def _share_gradients(training: Training, arrays: Arrays) -> None:
    """Let DistributedDataParallel sum the gradients. It orders its buckets anew after the first
    backward pass, so one pass is for nothing: else a resumed run's first step would be rounded
    otherwise.
    """
    if isinstance(training.forward, DistributedDataParallel):
        return
    with name_losses():
        training.forward = DistributedDataParallel(training.model)
    _add_gradients(training, _put_parts(training, arrays))
    training.optimizer.zero_grad(set_to_none=True)


def _put_parts(training: Training, arrays: Arrays) -> list[Batch]:
    """Return a batch on the device, in the parts that it takes at once."""
    parts = split_batch(arrays, training.count_sequences_at_once())
    return [training.device.put(part) for part in parts]


def _add_gradients(training: Training, parts: list[Batch], can_stop: bool = True) -> Sums | None:
    """Add up the gradients of a batch, part by part; return its sums, or None after a SIGTERM."""
    device, sums = training.device, Sums()
    for i, part in enumerate(parts):
        if i and can_stop and training.stopping and device.world_size == 1:
            training.optimizer.zero_grad(set_to_none=True)
            return None
        batch = part | training.draw_masks(part)
        if isinstance(training.forward, DistributedDataParallel):
            sends = i == len(parts) - 1
            with name_losses(), nullcontext() if sends else training.forward.no_sync():
                result = training.forward(batch)
                # it averages over the processes; a loss is a share of the whole batch's already
                (result.loss * device.world_size).backward()
        else:
            result = training.forward(batch)
            result.loss.backward()
        of_part = result.sums.items()
        sums = {name: v + sums[name] if name in sums else v for name, v in of_part}
    return sums


def train(training: Training) -> None:
    """Train to the end, or to a SIGTERM: then write a checkpoint and exit with status 143."""
    config, totals, device = training.config, training.totals, training.device
    budget = training.budget_seconds
    previous = signal.signal(signal.SIGTERM, lambda *_: setattr(training, "stopping", True))
    log = MetricsLog(training.folder, after_step=totals.step or None) if device.is_rank0 else None
    batches = prefetch(training.batches.iterate_steps(totals.step))
    training.clock_started, training.seconds_before = time.monotonic(), totals.seconds
    total, unit = (config.steps, "steps") if budget is None else (round(budget), "s")
    done = totals.step if budget is None else round(totals.seconds)
    try:
        with Progress(total, unit, "pre-training", done=done) as bar:
            training.model.train()
            training.meters = Meter(time.monotonic), Meter(time.process_time)
            window, over = Window(), training.is_over()
            while not over:
                arrays = next(batches)
                if taken := run_step(training, arrays):
                    matrix_flops = training.count_matrix_flops(arrays)
                    window.add(*taken, matrix_flops)
                    totals.step += 1
                    totals.sequences += config.batch
                    totals.tokens += int(arrays["real_total"])
                    totals.matrix_flops += matrix_flops
                over = training.is_over()
                stopping = device.all_reduce_max(training.stopping)[0] > 0
                keeping = over or stopping or totals.step % config.checkpoint_every == 0
                validating = over or training.is_validation_due()
                is_logged = keeping or validating or totals.step % config.log_every == 0
                if window.steps and is_logged:
                    log_window(training, log, bar, window)
                    window = Window()
                if validating and (over or not stopping):
                    measure_state(training, log)
                    keeping = keeping or totals.best_step == totals.step
                if keeping and device.is_rank0:
                    training.writer.write(copy_state(training), totals.best_step)
                if keeping or validating:
                    for meter in training.meters:
                        meter.take()  # without what was no training
                if stopping and not over:
                    training.writer.wait()
                    raise SystemExit(EXIT_TERMINATED)
    finally:
        batches.close()
        training.writer.wait()
        signal.signal(signal.SIGTERM, previous)


def log_window(training: Training, log: MetricsLog | None, bar: Progress, window: Window) -> None:
    """Log the means and rates of some steps; LossDiverged before bad weights are kept."""
    totals, device = training.totals, training.device
    norm = window.read(device)
    numbers = {**training.model.compute_means(window.sums), "gradient_norm": norm}
    _check_loss(training, numbers)
    seconds, cpu_seconds = (meter.take() for meter in training.meters)
    seconds = max(seconds, 1e-9)
    [cpu_seconds] = device.add_numbers(max(cpu_seconds, 0.0))
    totals.cpu_seconds += cpu_seconds
    totals.seconds = training.measure_elapsed()
    peak = device.measure_peak_flops() * device.world_size
    numbers |= {
        "tokens_per_second": window.sums["real"] / seconds,
        "sequences_per_second": window.steps * training.config.batch / seconds,
        "flops_utilization": window.matrix_flops / seconds / peak,
        "peak_memory_mb": device.measure_memory_mb(),
        "learning_rate": float(max(group["lr"] for group in training.optimizer.param_groups)),
        "tokens": totals.tokens,
        "matrix_flops": totals.matrix_flops,
    }
    if log:
        log.log(totals.step, **numbers)
    done = totals.step if training.budget_seconds is None else round(totals.seconds)
    losses = find_objective(training.config.objective).losses
    shown = {name: numbers[name] for name in losses if name in numbers}
    if math.isfinite(utilization := numbers["flops_utilization"]):
        shown["flops_utilization"] = round(utilization, 3)
    bar.update(done, **shown, tokens_per_second=round(numbers["tokens_per_second"]))


def _check_loss(training: Training, numbers: dict[str, float]) -> None:
    """End a training whose loss is of no use, before it keeps such weights."""
    totals, loss = training.totals, numbers["loss"]
    totals.first_loss = totals.first_loss or loss
    if all(map(math.isfinite, numbers.values())) and loss <= EXPLODED * totals.first_loss:
        return
    training.writer.wait()
    kept = [path.name for path in checkpoint.list_checkpoints(training.writer.folder)]
    raise LossDiverged(
        f"step {totals.step}: the loss is {loss:.4g}, at the start {totals.first_loss:.4g}; the "
        f"last good state is {kept[-1] if kept else 'the beginning'}. Take a lower "
        "`learning_rate`, a longer `warmup` or `precision` fp32, in another `output`"
    )


def measure_state(training: Training, log: MetricsLog | None) -> None:
    """Measure the weights that would be written now on dev shards, unless a SIGTERM comes."""
    totals, loaded = training.totals, training.loaded
    if not training.validation or not totals.step:
        return
    as_it_is = torch.compiler.set_stance("force_eager")  # other shapes would be compiled anew
    with as_it_is, loaded.averaged() if loaded else nullcontext():
        stops = lambda: training.stopping  # noqa: E731
        numbers = training.validation(training.model, training.device, stops)
    warning = describe_collapse(totals.step, numbers)
    if warning and training.device.is_rank0:
        print(warning, file=sys.stderr)
    if numbers.get("validation_loss", math.inf) < totals.best_loss:
        totals.best_loss, totals.best_step = numbers["validation_loss"], totals.step
    if log and numbers:
        log.log(totals.step, **numbers)


def copy_state(training: Training) -> checkpoint.State:
    """Copy the state to the CPU; place in the data and random numbers follow from step and seed."""
    numbers = {
        "totals": vars(training.totals).copy(),
        "identity": training.identity,
        "seed": training.config.seed,
    }
    tensors = checkpoint.copy_tensors(training.model, training.optimizer)
    return checkpoint.State(training.totals.step, tensors, numbers)


def restore_state(training: Training, state: checkpoint.State) -> None:
    """Put a checkpoint's state into the model, the optimizer and the totals."""
    is_fused = training.device.fused_optimizer
    checkpoint.restore_tensors(state.tensors, training.model, training.optimizer, is_fused)
    if training.graphs:
        training.begin_graphs()
    known = {field.name for field in fields(Totals)}  # not what another version counted too
    totals = {name: n for name, n in state.numbers["totals"].items() if name in known}
    training.totals = Totals(**totals)
