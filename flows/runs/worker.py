"""A worker of a pool that hands its runs back when it is stopped.

`python -m amazon_electra.flows.runs.worker --pool flows --limit 16` takes the options of
`prefect worker start`. At SIGTERM Prefect's own worker ends within seconds, and its container with
the runs in it, which stay Running until their heartbeats are missed. This one first ends the runs,
so that another worker continues them (flows/runs/lost_runs.py).
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType

import psutil

from amazon_electra.flows.runs.lost_runs import RESCHEDULE_VARIABLE

END_SECONDS = 30.0
"""For the runs to end: their jobs have 15 s for a checkpoint."""


def work(words: list[str]) -> int:
    """Work until a signal comes, and hand the runs back; return the exit code of the worker."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", "process", *words]
    environment = os.environ | {RESCHEDULE_VARIABLE: "true"}
    worker = subprocess.Popen(command, env=environment)

    def stop(number: int, frame: FrameType | None) -> None:
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, signal.SIG_IGN)
        end_runs(worker.pid)
        worker.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return worker.wait()


def end_runs(worker: int) -> None:
    """Send SIGTERM to each run of a worker, and wait until all have ended, `END_SECONDS` long."""
    deadline, stopped = time.monotonic() + END_SECONDS, set[psutil.Process]()
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(worker)
        while (runs := set(parent.children())) and time.monotonic() < deadline:
            for run in runs - stopped:
                with suppress(psutil.NoSuchProcess):
                    run.terminate()
            stopped |= runs
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(work(sys.argv[1:]))
