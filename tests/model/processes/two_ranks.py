"""One of two processes that share the batches of a small training; prints what it saw as JSON.

python -m tests.model.processes.two_ranks SHARDS
"""

import json
import sys
from itertools import islice
from pathlib import Path

import torch

from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.loop import Training
from model.pretraining.step import run_step
from model.processes.gradient_sum import GradientSum

SETTINGS = {"layers": "2", "hidden": "32", "intermediate": "64", "embedding": "16", "batch": "8"}
SETTINGS |= {"precision": "fp32", "dropout": "0.1"}


def build(shards: str, device, gradients: str = "fp32") -> Training:
    preset = apply_settings(PRESETS["tiny"], SETTINGS)
    opened = Shards.open(Path(shards))
    training = build_training(preset, opened, device, Path("unused"), gradients=gradients)
    training.model.train()
    if training.gradient_sum:
        kind = training.gradient_type
        training.gradient_sum = GradientSum(training.model.parameters(), device, kind, 4096)
    return training


def take_steps(training: Training, count: int) -> list[float]:
    """Return the losses of some steps, over all processes."""
    losses = []
    for arrays in islice(training.batches.iterate_steps(training.totals.step), count):
        sums, _ = run_step(training, arrays)
        training.device.all_reduce_sum(sums.values())
        numbers = {name: float(value) for name, value in sums.items()}
        losses.append(training.model.compute_means(numbers)["loss"])
        training.totals.step += 1
    return losses


def note_order(training: Training) -> list[str]:
    """Note when gradients arrive and when buckets are sent in the steps that follow."""
    events: list[str] = []
    summed = training.gradient_sum
    assert summed is not None
    send, note = summed._send, summed._note_gradient
    summed._send = lambda place: (events.append("sent"), send(place))
    for parameter in training.model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: events.append("gradient"))
    assert note is not None
    return events


def fail_once_on_rank1(training: Training) -> list[int]:
    """Let rank 1 alone run out of memory in its second step, when some gradients are there."""
    forward, tried = training.forward, []

    def run_forward(batch):
        tried.append(len(batch["input_ids"]))
        result = forward(batch)
        if training.device.rank == 1 and len(tried) == 2:
            training.model.embeddings.word.register_hook(fail_in_backward)
        return result

    def fail_in_backward(gradient):
        if len(tried) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")

    training.forward = run_forward
    return tried


def main() -> None:
    device = open_device("cpu", "fp32")
    found = {}
    try:
        plain = build(sys.argv[1], device)
        found["losses"] = take_steps(plain, 2)
        if device.world_size > 1:
            events = note_order(plain)
            found["losses"] += take_steps(plain, 1)
            found["sent_before_the_last_gradient"] = (
                "sent" in events[: len(events) - events[::-1].index("gradient")]
            )
            failing = build(sys.argv[1], device)
            tried = fail_once_on_rank1(failing)
            found |= {"after_failure": take_steps(failing, 3), "tried": tried}
            found["rounded"] = take_steps(build(sys.argv[1], device, "bf16"), 3)
            found["weights"] = float(sum(p.double().sum() for p in plain.model.parameters()))
        else:
            found["losses"] += take_steps(plain, 1)
    finally:
        device.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
