"""What watches a pre-training beside its steps: one concern, one callback of loop.py."""

import math
import sys
import time
from collections.abc import Callable

import torch

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.pretraining import checkpoint
from amazon_electra.model.pretraining.loop import Callback, Training, Window
from amazon_electra.model.pretraining.validation import describe_collapse

EXPLODED = 3.0  # times the loss at the start, when the networks knew nothing


class LossDiverged(RuntimeError):
    """The loss is not a number any more, or is far above where it began."""


class Meter:
    """What a clock grew by in training, without the pauses."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self._begun = self._paused = read()

    def pause(self) -> None:
        self._paused = self._read()

    def resume(self) -> None:
        self._begun += self._read() - self._paused

    def take(self) -> float:
        """Return the growth since the last call."""
        begun, self._begun = self._begun, self._read()
        return self._begun - begun


class Divergence(Callback):
    """Ends a training whose loss is of no use, before it keeps such weights."""

    def on_log(self, training: Training, window: Window, numbers: dict[str, float]) -> None:
        totals, loss = training.totals, numbers["loss"]
        totals.first_loss = totals.first_loss or loss
        if not all(map(math.isfinite, numbers.values())):
            self._end(training, "not a number")
        if loss > EXPLODED * totals.first_loss:
            self._end(training, f"{loss:.4g}, at the start {totals.first_loss:.4g}")

    def _end(self, training: Training, loss: str) -> None:
        training.writer.wait()
        kept = [path.name for path in checkpoint.list_checkpoints(training.writer.folder)]
        raise LossDiverged(
            f"the loss was {loss} in the {training.config.log_every} steps up to step "
            f"{training.totals.step}; the last good state is "
            f"{kept[-1] if kept else 'the beginning'}. Try a lower `learning_rate`, a longer "
            "`warmup` or `precision='fp32'`, in another `output`"
        )


class Speed(Callback):
    """Rates by the clock and by the processors, whose meters stand still while training does."""

    meters: tuple[Meter, ...]

    def on_begin(self, training: Training) -> None:
        self.meters = Meter(time.monotonic), Meter(time.process_time)

    def on_pause(self, training: Training) -> None:
        for meter in self.meters:
            meter.pause()

    def on_resume(self, training: Training) -> None:
        for meter in self.meters:
            meter.resume()

    def on_log(self, training: Training, window: Window, numbers: dict[str, float]) -> None:
        totals, device = training.totals, training.device
        seconds, cpu_seconds = (meter.take() for meter in self.meters)
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
        }


class DevShards(Callback):
    """Measures on dev shards, which a SIGTERM cuts short."""

    def on_measure(self, training: Training, numbers: dict[str, float]) -> None:
        totals = training.totals
        if not training.validation or not totals.step:
            return
        numbers |= training.validation(training.model, training.device, lambda: training.stopping)
        warning = describe_collapse(totals.step, numbers)
        if warning and training.device.is_rank0:
            print(warning, file=sys.stderr)
        if numbers.get("validation_loss", math.inf) < totals.best_loss:
            totals.best_loss, totals.best_step = numbers["validation_loss"], totals.step


class BatchHalving(Callback):
    """Lets the device take half as many sequences at once as those that did not fit."""

    def on_out_of_memory(self, training: Training) -> None:
        """Raise UserError for one sequence, and for processes that share a batch: the others wait
        for gradients of this step.
        """
        sequences = training.count_sequences_at_once()
        if sequences == 1:
            raise UserError(
                "one sequence does not fit into the device's memory: take a smaller recipe or "
                "shards"
            )
        share = training.config.batch // training.device.world_size
        half = next(n for n in range(sequences // 2, 0, -1) if share % n == 0)
        if training.shares_batches:
            raise UserError(
                f"{sequences} sequences at once do not fit into the memory of a device: run the "
                f"same command with `device_batch={half}`; it continues from the last checkpoint"
            )
        training.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        training.config = training.config.replace(device_batch=half)
        if training.graphs:
            training.begin_graphs()
        print(
            f"warning: {sequences} sequences at once do not fit into the memory of the device; "
            f"device_batch is {half} from here",
            file=sys.stderr,
        )


def make_callbacks() -> list[Callback]:
    """Return the callbacks of every training, in the order in which they are called."""
    return [Divergence(), Speed(), DevShards(), BatchHalving()]
