"""How much faster several processes train than one, a thread each, and whether they train the same.

    python tests/bench/processes.py [--preset small] [--processes 2] [--rounds 3] [--json]

One process and several take turns, each a whole `python -m model.pretrain` of a few steps that are
logged one by one. Other work on the machine slows processes that wait for each other more than one
alone; so besides the fastest and the median step of each side their processor seconds are compared:
`speed_ratio_of_idle_cores` is what cores that nothing else uses would give if nobody waited.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.presets import PRESETS
from model.tracking.metrics_log import read_metrics
from tests.model.synthetic_shards import write_shards

ROOT = Path(__file__).parents[2]


def train(processes: int, threads: int, shards: Path, output: Path, words: Sequence[str]) -> list:
    """Train from the beginning; return the lines of the log but the first, which warms up."""
    command = [sys.executable, "-m", "model.pretrain", "--shards", shards, "--output", output]
    counts = ["--processes", processes, "--threads", threads, "--set", "log_every=1"]
    subprocess.run(
        [*map(str, [*command, *counts]), *words],
        check=True,
        cwd=ROOT,
        env=os.environ | {"AMAZON_ELECTRA_PROGRESS": "none"},
        stdout=subprocess.DEVNULL,
    )
    return [line for line in read_metrics(output) if "tokens_per_second" in line]


def measure(sides: dict[str, tuple[int, int]], rounds: int, shards: Path, words: list[str]) -> dict:
    """Return the figures of each side, by its name, and of the last one against the first."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, list[float]] = {}
    for number in range(rounds):
        for name, (processes, threads) in sides.items():
            with tempfile.TemporaryDirectory() as folder:
                lines = train(processes, threads, shards, Path(folder), words)
            steps = [1 / line["sequences_per_second"] for line in lines[1:]]
            seconds[name] += steps
            cpu[name] += [
                s * line["cpu_utilization"] for s, line in zip(steps, lines[1:], strict=True)
            ]
            if not number:
                losses[name] = [line["loss"] for line in lines]
    first, *others = sides
    last = others[-1]
    worst = max(abs(a - b) / abs(a) for a, b in zip(losses[first], losses[last], strict=True))
    return {
        "speed_ratio": min(seconds[first]) / min(seconds[last]),
        "median_speed_ratio": statistics.median(seconds[first]) / statistics.median(seconds[last]),
        "cpu_ratio": (ratio := statistics.median(cpu[last]) / statistics.median(cpu[first])),
        "speed_ratio_of_idle_cores": sides[last][0] / ratio,
        "largest_relative_loss_difference": worst,
        **{f"{name}_sequences_per_second": 1 / min(of_side) for name, of_side in seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", default="small", choices=sorted(PRESETS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    preset = PRESETS[arguments.preset]
    sides = {
        "one_process": (1, 1),
        "one_process_all_threads": (1, arguments.processes),
        "processes": (arguments.processes, 1),
    }
    words = ["--preset", preset.name, "--device", "cpu", "--steps", str(arguments.steps)]
    words += ["--set", f"batch={arguments.batch}", "--set", f"precision={arguments.precision}"]
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(Path(folder), 2_000, preset.vocabulary_size, preset.max_length)
        numbers = measure(sides, arguments.rounds, shards, words)
    if arguments.json:
        print(json.dumps(numbers))
        return
    print(f"preset {preset.name}, batch {arguments.batch}, {arguments.precision}")
    for name, number in numbers.items():
        print(f"{name:40} {number:12,.6g}")


if __name__ == "__main__":
    main()
