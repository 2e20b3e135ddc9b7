"""Runs a Beam graph so that it always ends: a killed worker is an error within seconds, never a hang.

FnApiRunner waits for ever for a worker process that a signal has killed; only the thread that started the process,
named `run_worker`, notices and dies (apache_beam/runners/portability/local_job_service.py). So the graph runs in a
thread of its own, and whichever comes first, its end or that death, ends the job.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions

POLL_SECONDS = 0.5
NOTICE_SECONDS = 1.0  # a dead worker's closed channel may be noticed this long before its death
WORKER_THREADS = ("run_worker", "beam_control_read")


class WorkerLost(RuntimeError):
    """A worker process died; what is done is kept, so the same command continues."""


def run_graph(
    options: PipelineOptions, build: Callable[[beam.Pipeline], Any], poll: Callable[[], None] = lambda: None
) -> Any:
    """Builds and runs a graph; `poll` is called about twice a second, for progress. Returns Beam's result."""
    outcome: dict[str, Any] = {}
    ended, lost = threading.Event(), threading.Event()

    def work() -> None:
        try:
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            outcome["result"] = pipeline.run()
            outcome["result"].wait_until_finish()
        except BaseException as error:
            outcome["error"] = error
        finally:
            ended.set()

    def died(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else ""
        if name.startswith("run_worker"):
            outcome["lost"] = args.exc_value
            lost.set()
            ended.set()
        elif not name.startswith(WORKER_THREADS):
            usual_hook(args)

    usual_hook = threading.excepthook
    threading.excepthook = died
    others = set(children())
    try:
        threading.Thread(target=work, name="graph", daemon=True).start()
        while not ended.wait(POLL_SECONDS):
            poll()
        if "error" in outcome:
            lost.wait(NOTICE_SECONDS)
    finally:
        threading.excepthook = usual_hook
        if "result" not in outcome or "error" in outcome:
            kill(set(children()) - others)
    if "lost" in outcome:
        raise WorkerLost(f"{outcome['lost']}; the units that are done are kept: run the same command to continue")
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def kill(processes: set[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
