"""A small real job for the tests of the flow: counts, shows progress, writes metrics, misbehaves
when asked to.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.progress import Progress


def run(
    output: Path,
    *,
    steps: int = 3,
    seconds_a_step: float = 0.0,
    gate: str = "",
    how: str = "well",
) -> dict[str, object]:
    """Its last step waits until the file `gate` is there; `how` is what it does at its end, or
    `stubborn`.
    """
    output.mkdir(parents=True, exist_ok=True)
    attempts = output / "attempts"
    attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (output / "grandchild").write_text(str(grandchild.pid))
    (output / "pid").write_text(str(os.getpid()))  # last: who reads it may kill this process
    with (
        Progress(steps, "steps", "counting") as bar,
        open(output / "metrics.jsonl", "a") as metrics,
    ):
        for step in range(1, steps + 1):
            time.sleep(seconds_a_step)
            while step == steps and gate and not Path(gate).exists():
                time.sleep(0.1)
            metrics.write(json.dumps({"step": step, "time": time.time(), "loss": 1 / step}) + "\n")
            metrics.flush()
            bar.update(step, loss=1 / step)
    misbehave(how, len(attempts.read_text()))
    (output / "made.txt").write_text("made\n")
    (output / "threads").write_text(os.environ.get("OMP_NUM_THREADS", ""))
    accuracy = {"value": 0.5, "low": 0.4, "high": 0.6}
    return {
        "steps": steps,
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
