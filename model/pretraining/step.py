"""Takes one optimizer step, in one process or in several that share its batch."""

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from beam_jobs.job.errors import UserError
from model.pretraining import optimizer as optimizers
from model.pretraining.input.batches import Arrays, split_batch
from model.pretraining.network.attention import put_batch
from model.pretraining.network.dropout import Place
from model.pretraining.network.masked_prediction import Sums

if TYPE_CHECKING:
    from model.pretraining.loop import Training


def run_step(training: "Training", arrays: Arrays) -> tuple[Sums, Tensor] | None:
    """Take one optimizer step on this process's share of a batch.

    Return sums for the log and the gradient's norm, both unread. Return None if a SIGTERM came
    between two parts of the batch: then nothing has changed.
    """
    device, model = training.device, training.model
    progress = training.compute_progress()
    optimizers.begin_step(training.optimizer, progress)
    model.begin_step(progress)
    while True:
        sums, has_failed = None, True
        with contextlib.suppress(torch.OutOfMemoryError):
            sums = _add_gradients(training, arrays)
            has_failed = False
        if training.gradient_sum:
            has_failed = training.gradient_sum.finish(has_failed)
        if not has_failed:
            break
        _halve_device_batch(training, arrays)  # after the block: the error holds the tensors
    if sums is None:
        return None
    norm = nn.utils.clip_grad_norm_(training.parameters, training.config.clip).detach()
    training.optimizer.step()
    if training.anchor is not None:
        training.anchor.pull_groups(training.optimizer.param_groups, training.adaptation)
    training.optimizer.zero_grad(set_to_none=True)
    device.end_step()
    return sums, norm


def _add_gradients(training: "Training", arrays: Arrays) -> Sums | None:
    """Add up the gradients of a batch, part by part; return its sums, or None after a SIGTERM."""
    config, device = training.config, training.device
    number = training.totals.step
    device.seed_generators(config.seed * 1_000_003 + number)
    sums: Sums = {}
    size = training.count_sequences_at_once(arrays)
    parts = split_batch(arrays, size)
    first = device.rank * len(arrays["input_ids"])
    cell = training.count_sequences_of_one(arrays)
    for i, part in enumerate(parts):
        if i and training.stopping and device.world_size == 1:
            training.optimizer.zero_grad(set_to_none=True)
            return None
        if training.gradient_sum and i == len(parts) - 1:
            training.gradient_sum.begin()
        which, start = divmod(first + i * size, cell)
        training.model.noise.begin_step(config.seed, number, which, Place(start, size, cell))
        result = training.forward(put_batch(device, part))
        result.loss.backward()
        sums = {name: v + sums[name] if name in sums else v for name, v in result.sums.items()}
    return sums


def _halve_device_batch(training: "Training", arrays: Arrays) -> None:
    """Let every device take half as many sequences at once as those that did not fit into the
    memory of one.
    """
    sequences = training.count_sequences_at_once(arrays)
    if sequences == 1:
        raise UserError(
            "one sequence does not fit into the device's memory: take a smaller preset or shards"
        )
    training.optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    half = max(1, sequences // 2 * arrays["input_ids"].shape[1] // training.length)
    training.config = replace(training.config, device_batch=half)
    if training.device.is_rank0:
        print(
            f"warning: {sequences} sequences at once do not fit into the memory of the device; "
            f"device_batch is {half} from here",
            file=sys.stderr,
        )
