"""Memory of a long run: 20,000 tiny steps, with checkpoints, validations and log lines, must not
grow.

    python tests/bench/pretrain_memory.py [--steps 20000] [--json]

Exits with 1 when the process holds over 5% more at the end than after the first tenth of the steps,
and no sooner than the second checkpoint, which takes memory once.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.pretrain import run
from model.tracking.metrics_log import read_metrics
from tests.model.synthetic_shards import write_shards

SETTINGS = {
    "layers": 1,
    "hidden": 32,
    "intermediate": 64,
    "embedding": 32,
    "batch": 8,
    "dropout": 0.1,
}
SETTINGS |= {
    "log_every": 20,
    "checkpoint_every": 500,
    "validate_every": 500,
    "validate_sequences": 64,
}
ALLOWED_GROWTH = 1.05


def watch(folder: Path, held: list[tuple[int, float]], done: threading.Event) -> None:
    """Every second the last logged step and the resident memory, MB."""
    process = psutil.Process()
    while not done.wait(1.0):
        lines = read_metrics(folder)
        if lines:
            held.append((int(lines[-1]["step"]), process.memory_info().rss / 2**20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sets = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = write_shards(folder / "shards", 400, seed=0)
        dev = write_shards(folder / "dev", 400, seed=1, split="dev")
        fixed = [
            "--preset",
            "tiny",
            "--device",
            "cpu",
            "--threads",
            "1",
            "--steps",
            str(arguments.steps),
        ]
        held: list[tuple[int, float]] = []
        done = threading.Event()
        watcher = threading.Thread(target=watch, args=(folder / "out", held, done))
        watcher.start()
        started = time.monotonic()
        run(
            [
                "--shards",
                str(shards),
                "--output",
                str(folder / "out"),
                "--validation",
                str(dev),
                *fixed,
                *sets,
            ]
        )
        seconds = time.monotonic() - started
        done.set()
        watcher.join()
    first = max(arguments.steps / 10, 2 * SETTINGS["checkpoint_every"])
    tenth = next(memory for step, memory in held if step >= first)
    numbers = {
        "steps": arguments.steps,
        "seconds": round(seconds, 1),
        "mb_after_a_tenth": tenth,
        "mb_at_the_end": held[-1][1],
    }
    numbers["growth"] = held[-1][1] / tenth
    if arguments.json:
        print(json.dumps(numbers))
    else:
        for step, memory in held[:: max(1, len(held) // 10)]:
            print(f"{step:8,} steps {memory:10,.1f} MB")
        print("  ".join(f"{name} {number:,.4g}" for name, number in numbers.items()))
    sys.exit(numbers["growth"] > ALLOWED_GROWTH)


if __name__ == "__main__":
    main()
