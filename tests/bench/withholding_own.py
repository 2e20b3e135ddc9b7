"""CPU time that the corpus job takes to search for near copies of its own dev and test reviews.

    python tests/bench/withholding_own.py --input FILE … [--rounds 3] [--json]

The job runs with and without the search in turn, in one process each. Of the rounds the cheapest
counts: other work on the machine only ever adds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def measure_cpu_seconds(files: list[str], *options: str) -> float:
    """Return the CPU seconds of one run of the job."""
    with tempfile.TemporaryDirectory() as folder:
        job = [sys.executable, "-m", "beam_jobs.corpus_job", "--input", *files]
        where = ["--output", f"{folder}/corpus", "--direct_running_mode", "in_memory"]
        child = subprocess.Popen(
            [*job, *where, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the corpus job failed: {' '.join(job)}")
    return usage.ru_utime + usage.ru_stime


def measure(files: list[str], rounds: int) -> dict[str, float]:
    pairs = [
        (measure_cpu_seconds(files), measure_cpu_seconds(files, "--withhold_own", "false"))
        for _ in range(rounds)
    ]
    searched, plain = (min(seconds) for seconds in zip(*pairs, strict=True))
    return {
        "cpu_seconds": round(searched, 2),
        "cpu_seconds_without": round(plain, 2),
        "share": round(searched / plain - 1, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--input", nargs="+", required=True, metavar="FILE", help="a dump")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    row = measure(arguments.input, arguments.rounds)
    print(
        json.dumps(row)
        if arguments.json
        else "\n".join(f"{name:20} {value:>8}" for name, value in row.items())
    )


if __name__ == "__main__":
    main()
