"""The loop of a pre-training: steps, log lines, validations."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.config import AdaptationConfig, PretrainingConfig
from amazon_electra.model.device import Device
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
from amazon_electra.model.runtime import (
    Checkpoints,
    Meter,
    Run,
    State,
    copy_tensors,
    list_checkpoints,
    restore_tensors,
)
from amazon_electra.model.tracking.metrics_log import MetricsLog

COMPILED = {Layer: ("forward",), ReplacedHead: ("forward",), TokenHead: ("forward", "compute_rows")}
"""Methods that are compiled, each kind once: all but look-ups and what is small."""
EXPLODED = 3.0  # times the loss at the start, when the networks knew nothing


class LoadedTrunk:
    """A copy of a model's trunk as it was loaded, and its share in the weights that are written."""

    def __init__(self, model: PretrainingModel, share: float) -> None:
        trunk = model.list_trunk_names()
        self._share = share
        self._trained = [tensor for name, tensor in model.named_parameters() if name in trunk]
        self._loaded = [parameter.detach().clone() for parameter in self._trained]

    @torch.no_grad()
    def average(self) -> None:
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


class Window:
    """The steps since the last log line; their sums stay on the device until they are read."""

    def __init__(self) -> None:
        self.steps = 0
        self._sums: Sums = {}
        self._norms: list[Tensor] = []

    def add(self, sums: Sums, gradient_norm: Tensor) -> None:
        """Add the sums of one step, unread."""
        self._sums = {name: v + self._sums[name] if self._sums else v for name, v in sums.items()}
        self._norms.append(gradient_norm)
        self.steps += 1

    def read(self, device: Device) -> tuple[dict[str, float], float]:
        """Return the sums over all processes, and the mean gradient norm."""
        device.wait()
        device.all_reduce_sum(self._sums.values())
        sums = {name: float(value.item()) for name, value in self._sums.items()}
        return sums, float(torch.stack(self._norms).mean().item())


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


@dataclass
class Training(Run):
    """Everything one run needs; `train` moves it forward."""

    config: PretrainingConfig
    model: PretrainingModel
    device: Device
    batches: Batches
    folder: Path
    identity: dict[str, Any]
    matrix_flops: MatrixFlops
    trained_length: int  # tokens; of the sequences here, or of longer ones before
    validation: Validation | None = None
    adaptation: AdaptationConfig = field(default_factory=AdaptationConfig)
    start: dict[str, Any] = field(default_factory=dict)  # what is known of the loaded weights
    loaded: LoadedTrunk | None = None  # where it is averaged with the trained one
    totals: Totals = field(default_factory=Totals)
    checkpoints: Checkpoints = field(init=False)

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
        if compiles and self.model.module is None:  # that one calls hooks
            self.compile()
        self.checkpoints = Checkpoints(
            self.folder / "checkpoints", self.config.keep_checkpoints, self.identity
        )

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

        def take_whole_step(parts: list[Batch]) -> tuple[Sums, Tensor]:
            sums = _add_gradients(self, parts, can_stop=False)
            assert sums is not None
            return _finish_step(self, sums)

        has_graphs = self.compiled and self.device.kind == "cuda" and not self.shares_batches
        self.graphs = StepGraphs(take_whole_step, self.optimizer) if has_graphs else None

    def count_matrix_flops(self, arrays: Arrays) -> float:
        """Return the operations of one step, over all processes, as this device computes it."""
        length, sequences = arrays["input_ids"].shape[1], self.config.batch
        slots = count_slots(length, self.config.mask_probability)
        within = float(arrays["squared_total"])
        pairs = within if self.device.has_document_attention else sequences * length**2
        return self.matrix_flops.count(sequences * length, pairs, sequences * slots)

    def count_sequences_at_once(self, most: int | None = None) -> int:
        """Return how many sequences of its share of a batch the device takes at once."""
        share = self.config.batch // self.device.world_size
        most = min(share, self.config.device_batch or share) if most is None else most
        return next((n for n in range(most, 0, -1) if share % n == 0), 0)

    def train(self) -> None:
        done, is_rank0 = self.totals.step, self.device.is_rank0
        self.log = MetricsLog(self.folder, after_step=done or None) if is_rank0 else None
        self.meters = Meter(time.monotonic), Meter(time.process_time)
        self.elapsed = Meter(time.monotonic)
        self.window = Window()
        with (
            Progress(self.config.steps, "steps", "pre-training", done=done) as self.bar,
            closing(prefetch(self.batches.iterate_steps(done))) as self.prefetched,
        ):
            self.model.train()
            self.run()

    def is_over(self) -> bool:
        return self.totals.step >= self.config.steps

    def take_step(self) -> None:
        arrays = next(self.prefetched)
        if taken := run_step(self, arrays):
            self.window.add(*taken)
            self.totals.step += 1
            self.totals.sequences += self.config.batch
            self.totals.tokens += int(arrays["real_total"])
            self.totals.matrix_flops += self.count_matrix_flops(arrays)

    def is_checkpoint_due(self) -> bool:
        return self.totals.step % self.config.checkpoint_every == 0

    def review_step(self, keeps: bool, stopping: bool) -> None:
        step, steps, over = self.totals.step, self.config.steps, self.is_over()
        is_due = VALIDATIONS * step // steps > VALIDATIONS * (step - 1) // steps
        if self.config.validate_every:
            is_due = step % self.config.validate_every == 0
        validates = self.validation is not None and (over or is_due)
        is_logged = keeps or validates or self.totals.step % self.config.log_every == 0
        if self.window.steps and is_logged:
            self.log_window()
        if validates and (over or not stopping):
            self.measure_state()
        if validates:
            for meter in self.meters:
                meter.take()  # without what was no training

    def log_window(self) -> None:
        """Log the means and rates of some steps; UserError before bad weights are kept."""
        totals, device, steps = self.totals, self.device, self.window.steps
        sums, norm = self.window.read(device)
        self.window = Window()
        numbers = {**self.model.compute_means(sums), "gradient_norm": norm}
        self._check_loss(numbers)
        seconds, cpu_seconds = (meter.take() for meter in self.meters)
        totals.cpu_seconds += device.add_number(max(cpu_seconds, 0.0))
        totals.seconds += self.elapsed.take()
        seconds = max(seconds, 1e-9)
        numbers |= {
            "tokens_per_second": sums["real"] / seconds,
            "sequences_per_second": steps * self.config.batch / seconds,
            "peak_memory_mb": device.measure_memory_mb(),
            "learning_rate": float(max(group["lr"] for group in self.optimizer.param_groups)),
            "tokens": totals.tokens,
            "matrix_flops": totals.matrix_flops,
        }
        if self.log:
            self.log.log(totals.step, **numbers)
        losses = find_objective(self.config.objective).losses
        shown = {name: numbers[name] for name in losses if name in numbers}
        rate = round(numbers["tokens_per_second"])
        self.bar.update(totals.step, **shown, tokens_per_second=rate)

    def _check_loss(self, numbers: dict[str, float]) -> None:
        """End a training whose loss is of no use, before it keeps such weights."""
        totals, loss = self.totals, numbers["loss"]
        totals.first_loss = totals.first_loss or loss
        if all(map(math.isfinite, numbers.values())) and loss <= EXPLODED * totals.first_loss:
            return
        self.checkpoints.wait()
        kept = ["the beginning", *(p.name for p in list_checkpoints(self.checkpoints.folder))]
        raise UserError(
            f"step {totals.step}: the loss is {loss:.4g}, at the start {totals.first_loss:.4g}; "
            f"the last good state is {kept[-1]}. Take a lower `learning_rate`, a longer `warmup` "
            "or `precision` fp32, in another `output`"
        )

    def measure_state(self) -> None:
        """Measure the weights that would be written now on dev shards, unless a SIGTERM comes."""
        assert self.validation
        as_it_is = torch.compiler.set_stance("force_eager")  # other shapes would be compiled anew
        with as_it_is, self.loaded.averaged() if self.loaded else nullcontext():
            numbers = self.validation(self.model, self.device, lambda: self.stopping)
        warning = describe_collapse(self.totals.step, numbers)
        if warning and self.device.is_rank0:
            print(warning, file=sys.stderr)
        if self.log and numbers:
            self.log.log(self.totals.step, **numbers)

    def copy_state(self) -> State:
        """Copy the state to the CPU; place in the data and random numbers follow from the step."""
        tensors = copy_tensors(self.model, self.optimizer)
        return State(self.totals.step, tensors, {"totals": vars(self.totals).copy()})

    def restore_state(self, state: State) -> None:
        restore_tensors(state.tensors, self.model, self.optimizer, self.device)
        if self.graphs:
            self.begin_graphs()
        self.totals = Totals(**state.numbers["totals"])


def run_step(training: Training, arrays: Arrays) -> tuple[Sums, Tensor] | None:
    """Take one step on this process's share of a batch; return sums for the log and the gradient's
    norm, unread, or None if a SIGTERM came between two parts: then nothing has changed.
    """
    progress = (training.totals.step + 1) / (training.config.steps + 1)
    optimizers.set_learning_rates(training.optimizer, training.config.warmup, progress)
    while True:
        failure, seed = "", training.config.seed * 1_000_003 + training.totals.step
        training.device.seed_generators(seed)
        try:  # what was compiled runs uncompiled once that is not wanted
            with nullcontext() if training.compiled else torch.compiler.set_stance("force_eager"):
                at_once = training.count_sequences_at_once()
                parts = [training.device.put(part) for part in split_batch(arrays, at_once)]
                if training.shares_batches and training.forward is training.model:
                    _share_gradients(training, parts)
                    training.device.seed_generators(seed)
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
            training.compiled, training.graphs = False, None
        if failure:
            training.optimizer.zero_grad(set_to_none=True)
            print(f"warning: {failure}; the training goes on without it, slower", file=sys.stderr)
        else:
            _halve_batch(training)
    return _finish_step(training, sums) if sums is not None else None


def _halve_batch(training: Training) -> None:
    """Take half as many sequences at once; UserError for one, or where processes share a batch."""
    sequences = training.count_sequences_at_once()
    half = training.count_sequences_at_once(sequences // 2)
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


def _finish_step(training: Training, sums: Sums) -> tuple[Sums, Tensor]:
    norm = nn.utils.clip_grad_norm_(training.parameters, training.config.clip).detach()
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)
    training.device.end_step()
    return sums, norm


def _share_gradients(training: Training, parts: list[Batch]) -> None:
    """Let DistributedDataParallel sum the gradients. It orders its buckets anew after the first
    backward pass, so one pass is for nothing: else a resumed run's first step would be rounded
    otherwise.
    """
    with name_losses():
        training.forward = DistributedDataParallel(training.model)
    _add_gradients(training, parts)
    training.optimizer.zero_grad(set_to_none=True)


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
