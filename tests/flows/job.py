"""A small real job for the tests of the flow: counts, shows progress, writes metrics, misbehaves
when asked to.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from amazon_electra.beam_jobs.core.command import main
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.progress import Progress


def run(argv: list[str] | None = None) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seconds_a_step", type=float, default=0.0)
    parser.add_argument("--gate", type=Path, help="the last step waits until this file is there")
    parser.add_argument("--model", help="folder that it writes, as a pre-training does")
    parser.add_argument("--how", default="well", help="what it does at its end, or `stubborn`")
    chosen = parser.parse_args(argv)
    chosen.output.mkdir(parents=True, exist_ok=True)
    attempts = chosen.output / "attempts"
    attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
    if chosen.how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (chosen.output / "grandchild").write_text(str(grandchild.pid))
    (chosen.output / "pid").write_text(str(os.getpid()))  # last: who reads it may kill this process
    with (
        Progress(chosen.steps, "steps", "counting") as bar,
        open(chosen.output / "metrics.jsonl", "a") as metrics,
    ):
        for step in range(1, chosen.steps + 1):
            time.sleep(chosen.seconds_a_step)
            while step == chosen.steps and chosen.gate and not chosen.gate.exists():
                time.sleep(0.1)
            metrics.write(json.dumps({"step": step, "time": time.time(), "loss": 1 / step}) + "\n")
            metrics.flush()
            bar.update(step, loss=1 / step)
    misbehave(chosen.how, len(attempts.read_text()))
    (chosen.output / "made.txt").write_text("made\n")
    (chosen.output / "threads").write_text(os.environ.get("OMP_NUM_THREADS", ""))
    if chosen.model:
        (chosen.output / chosen.model).mkdir(exist_ok=True)
        (chosen.output / chosen.model / "config.json").write_text("{}")
    accuracy = {"value": 0.5, "low": 0.4, "high": 0.6}
    return {
        "steps": chosen.steps,
        "metrics": {"accuracy": accuracy},
        "dropped": {"odd": 1, "even": 2},
    }


def misbehave(how: str, attempt: int) -> None:
    if how == "mistake":
        raise UserError("line 3 of reviews.json: not a review; remove it")
    if how == "bug":
        raise ZeroDivisionError("a bug")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "crashed":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit 255":
        os._exit(255)
    if how == "network" or (how == "once" and attempt == 1):
        raise ConnectionResetError("the bucket went away")


if __name__ == "__main__":
    main(run)
