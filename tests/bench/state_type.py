"""What `states=bf16` of the pre-training saves: memory and time of a step, beside its loss.

    python tests/bench/state_type.py [--preset small] [--batch 16] [--rounds 4] [--json]

Both sides have products in bf16 and take the same batches of synthetic shards in turn, on one
thread of a CPU. Memory is what a forward pass keeps for the backward pass, weights and the pool of
dropout left out; time is CPU seconds, the median of the rounds.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.loop import Training, run_step
from model.pretraining.network.attention import put_batch
from tests.model.synthetic_shards import write_shards

KINDS = ("fp32", "bf16")


def count_kept_bytes(training: Training) -> int:
    """Return the bytes that a forward pass of a batch keeps for the backward pass."""
    own = {parameter.untyped_storage().data_ptr() for parameter in training.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    training.model.train()
    training.model.noise.begin_step(0, 0)
    arrays = next(iter(training.batches.iterate_steps(0)))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = training.model(put_batch(training.device, arrays)).loss
    del loss
    own |= {pool.untyped_storage().data_ptr() for pool in training.model.noise._pools.values()}
    return sum(size for place, size in kept.items() if place not in own)


def measure(preset_name: str, settings: dict[str, str], rounds: int) -> list[dict]:
    """Return a row for each type of the states."""
    trainings = []
    with tempfile.TemporaryDirectory() as folder:
        base = PRESETS[preset_name]
        made = write_shards(Path(folder), 1000, base.vocabulary_size, base.max_length)
        for kind in KINDS:
            preset = apply_settings(base, settings | {"states": kind, "precision": "bf16"})
            device = open_device("cpu", "bf16")
            trainings.append(build_training(preset, Shards.open(made), device, Path(folder)))
        kept = [count_kept_bytes(training) for training in trainings]
        seconds: list[list[float]] = [[], []]
        losses = [0.0, 0.0]
        streams = [training.batches.iterate_steps(0) for training in trainings]
        for _ in range(rounds + 1):
            for i, training in enumerate(trainings):
                arrays = next(streams[i])
                started = time.process_time()
                sums, _ = run_step(training, arrays)
                seconds[i].append(time.process_time() - started)
                totals = {name: value.item() for name, value in sums.items()}
                losses[i] = training.model.compute_means(totals)["loss"]
                training.totals.step += 1
    return [
        {
            "states": kind,
            "kept_mb": round(kept[i] / 1e6, 1),
            "step_cpu_seconds": round(statistics.median(seconds[i][1:]), 3),
            "last_loss": round(losses[i], 4),
        }
        for i, kind in enumerate(KINDS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", default="small", choices=sorted(PRESETS))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = dict(one.split("=") for one in arguments.set) | {"batch": str(arguments.batch)}
    rows = measure(arguments.preset, settings, arguments.rounds)
    if arguments.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
