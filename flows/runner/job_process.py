"""Runs jobs one after the other in one process: `python -m amazon_electra.flows.runner.job_process
DESCRIPTOR`.

Each line that the descriptor gives is a job: JSON of its module, its arguments and the log that its
stderr is appended to. The answer is a line on stdout: its result and its cost. Start and imports,
which take longer than many a fine-tuning, are paid once. A job that fails ends the process with the
exit code that it has on its own, so nothing of a failure is left for the next one.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from amazon_electra.beam_jobs.core.command import (
    exit_at_signal,
    give_memory_back,
    redirect_stdout_to_stderr,
    run_to_exit_code,
)


def main() -> NoReturn:
    signal.signal(signal.SIGTERM, exit_at_signal)
    code, used = 0, 0.0
    with redirect_stdout_to_stderr() as answers, open(int(sys.argv[1]), encoding="utf-8") as orders:
        try:
            for line in orders:
                code = run_to_exit_code(partial(run_job, json.loads(line), used), answers)
                if code:
                    break
                used = measure_cpu()
                gc.collect()
                give_memory_back()
        except SystemExit:  # a signal between two jobs
            code = 128 + signal.SIGTERM
    sys.stderr.flush()
    os._exit(code)


def run_job(order: dict[str, Any], used: float) -> dict[str, Any]:
    """Return result and cost of a job; `used` are the CPU seconds of those before it."""
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    with suppress(OSError):
        # Linux: the peak of memory begins anew
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    result = importlib.import_module(order["module"]).run(order["arguments"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cost = {"cpu_seconds": round(measure_cpu() - used, 3), "peak_megabytes": round(peak, 1)}
    return {"result": result, **cost}


def measure_cpu() -> float:
    """Return the CPU seconds of this process and of its children that are over."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
