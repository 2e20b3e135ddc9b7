"""Runs a Beam graph so that it always ends: a killed worker is an error within seconds, never a hang.

FnApiRunner waits for ever for a worker process that a signal has killed; only the thread that started the process,
named `run_worker`, notices and dies (apache_beam/runners/portability/local_job_service.py). So the graph runs in a
thread of its own, and whichever comes first, its end or that death, ends the job.
"""

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs import storage
from beam_jobs.command import JobFailed, MayPass, UserMistake
from beam_jobs.options import only_stages

POLL_SECONDS = 0.5
NOTICE_SECONDS = 1.0  # a dead worker's closed channel may be noticed this long before its death
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
TOLD = {kind.__name__: kind for kind in (UserMistake, JobFailed, MayPass)}
TOLD_AS_TEXT = re.compile(rf"\b({'|'.join(TOLD)}): (.*)")
NETWORK = re.compile(rf"\b(Connection\w*Error|TimeoutError|{'|'.join(sorted(storage.NETWORK_ERRORS))}): .*")
WORKER_THREADS = ("run_worker", "beam_control_read", "read_grpc_client_inputs")  # die with their worker


class WorkerLost(MayPass):
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
            if not only_stages(options):
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
        if "result" in outcome and "error" not in outcome:
            threading.excepthook = usual_hook
        else:  # the hook stays: the runner's threads go on dying of their lost workers
            kill(set(children()) - others)
    if "lost" in outcome:
        raise WorkerLost(f"{outcome['lost']}; the units that are done are kept: run the same command to continue")
    if "error" in outcome:
        raise named(outcome["error"]) or outcome["error"]
    return outcome["result"]


def largest_first(things: Iterable[Any], size: Callable[[Any], int]) -> list[Any]:
    """FnApiRunner deals elements out to its workers in turn, in the order they come: so each gets as much to do."""
    return sorted(things, key=size, reverse=True)


def named(error: BaseException) -> Exception | None:
    """A mistake, a failure or a full disk that a worker met: from another process errors come as text."""
    if isinstance(error, UserMistake | JobFailed):
        return error
    if told := TOLD_AS_TEXT.search(str(error)):
        return TOLD[told[1]](told[2].split(" [while running")[0].strip())
    if passing := NETWORK.search(str(error)):
        return MayPass(f"{passing[0].strip()}; what is done is kept, run the same command to continue")
    if full := DISK_FULL.search(str(error)):
        return JobFailed(f"{full[0]}: make room; what is done is kept, run the same command to continue")
    return None


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def kill(processes: set[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
