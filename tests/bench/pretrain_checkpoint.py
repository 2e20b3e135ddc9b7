"""How long training is held up by a checkpoint: the copy, against copying and writing.

python tests/bench/pretrain_checkpoint.py [--preset small] [--json]
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretraining import checkpoint, loop
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from tests.model.synthetic_shards import write_shards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", default="small", choices=sorted(PRESETS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    preset = apply_settings(PRESETS[arguments.preset], {"batch": "4"})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = Shards.open(
            write_shards(folder / "shards", 200, preset.vocabulary_size, preset.max_length)
        )
        training = build_training(preset, shards, open_device("cpu", "auto"), folder)
        loop.run_step(training, next(training.batches.iterate_steps(0)))
        started = time.perf_counter()
        state = loop.copy_state(training)
        copied = time.perf_counter()
        training.writer.write(state, best_step=-1)
        begun = time.perf_counter()
        training.writer.wait()
        written = time.perf_counter()
        path = checkpoint.list_checkpoints(training.writer.folder)[0] / checkpoint.TENSORS
        numbers = {
            "megabytes": path.stat().st_size / 1e6,
            "training_waits_seconds": begun - started,
            "copy_seconds": copied - started,
            "write_and_sync_seconds": written - begun,
        }
    if arguments.json:
        print(json.dumps(numbers))
    else:
        print("  ".join(f"{name} {number:.3f}" for name, number in numbers.items()))


if __name__ == "__main__":
    main()
