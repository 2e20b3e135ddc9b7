"""What a pre-training step costs from a published encoder, against a fresh one of its shape, in
turn in one process.

    python tests/bench/published_step.py --encoder minilm --shards shards [--steps 40] [--json]

Both are trained as masked language models on the shards' own batches, with the same settings: the
published one is a start as `--start-from` gives it, the other begins with random weights. Times are
CPU seconds of one thread; of all steps the median, and the sum.
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
from model.pretraining.network.initial_weights import Origin

STARTS = ("published", "fresh")
WARM_UP = 2
"""Steps that are not counted."""


def build_trainings(encoder: Path, shards: Shards, batch: int, folder: Path) -> list[Training]:
    """Return a training that starts from the encoder and one of the same shape, both at their first
    step.
    """
    origin = Origin(encoder)
    settings = origin.read_settings() | {"objective": "mlm", "dropout": "0.1"}
    preset = apply_settings(PRESETS["tiny"], settings | {"batch": str(batch)})
    device = open_device("cpu", preset.pretraining.precision)
    return [
        build_training(preset, shards, device, folder, origin=start) for start in (origin, None)
    ]


def measure(encoder: Path, shards: Shards, batch: int, steps: int) -> dict[str, float]:
    """Return tokens per CPU second of both, and the share of the published one in the other's."""
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    tokens = dict.fromkeys(STARTS, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        trainings = build_trainings(encoder, shards, batch, Path(folder))
    streams = [training.batches.iterate_steps(0) for training in trainings]
    for number in range(steps + WARM_UP):
        for name, training, batches in zip(STARTS, trainings, streams, strict=True):
            training.model.train()
            arrays = next(batches)
            began = time.process_time()
            run_step(training, arrays)
            took = time.process_time() - began
            if number >= WARM_UP:
                seconds[name].append(took)
                tokens[name] += float(arrays["real_total"])
    speeds = {name: tokens[name] / sum(seconds[name]) for name in STARTS}
    middle = {name: statistics.median(seconds[name]) for name in STARTS}
    return {
        **{f"{name}_tokens_per_cpu_second": speed for name, speed in speeds.items()},
        **{f"{name}_step_cpu_seconds": took for name, took in middle.items()},
        "speed_ratio": speeds["published"] / speeds["fresh"],
        "median_ratio": middle["fresh"] / middle["published"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--encoder", type=Path, required=True, help="what model.origin wrote")
    parser.add_argument("--shards", type=Path, required=True, help="made with its vocabulary")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40, help="of each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shards = Shards.open(arguments.shards)
    numbers = measure(arguments.encoder, shards, arguments.batch, arguments.steps)
    if arguments.json:
        print(json.dumps(numbers))
        return
    for name, number in numbers.items():
        print(f"{name:32} {number:12,.3f}")


if __name__ == "__main__":
    main()
