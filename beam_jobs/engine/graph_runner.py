"""Runs a Beam graph so that it always ends: a killed worker is an error, never a hang.

FnApiRunner waits for ever for a worker process that a signal has killed; only the thread that
started the process, named `run_worker`, notices and dies
(apache_beam/runners/portability/local_job_service.py). So the graph runs in a thread of its own,
and whichever comes first, its end or that death, ends the job.

An engine elsewhere runs the graph by itself: here is only waited, and who stops waiting, because
the run was cancelled or a server of the engine is gone, cancels the engine's job too.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import apache_beam as beam
import grpc
import psutil
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.engine.beam_options import (
    count_processes,
    has_job_server,
    has_workers_elsewhere,
    is_local,
    is_staged_only,
)
from beam_jobs.engine.flink_jobs import cancel_flink_job, name_job
from beam_jobs.engine.forked_workers import fork_workers
from beam_jobs.engine.job_server import watch_job_server
from beam_jobs.engine.local_command import tune_memory
from beam_jobs.engine.worker_check import add_worker_check, leave_probe
from beam_jobs.engine.worker_starts import follow_flink_job
from beam_jobs.job.errors import (
    AWAY_STATUSES,
    NETWORK_ERRORS,
    JobFailed,
    TransientError,
    UserError,
    is_network_error,
)

POLL_SECONDS = 0.5
POLL_PAUSE, MOST_POLL_PAUSE = 100, 60.0
"""After a look at what is done the next waits so many times as long as it took, at most so many
seconds: listing a store's folders of many units takes CPU time beside the workers'."""
NOTICE_SECONDS = 1.0
"""A dead worker's closed channel may be noticed this long before its death."""
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
ERROR_KINDS = {kind.__name__: kind for kind in (UserError, JobFailed, TransientError)}
ERROR_TEXT = re.compile(rf"\b({'|'.join(ERROR_KINDS)}): (.*)")
NETWORK = re.compile(
    rf"\b(?:Connection\w*Error|{'|'.join(sorted(NETWORK_ERRORS))}): .*"
    rf"|\bHttpError: .*, (?:{'|'.join(map(str, sorted(AWAY_STATUSES)))})\b"
)
"""A line that names an error of the network, or one of gcsfs with the status of a server that is
away."""
MISSING_CODE = re.compile(r"ModuleNotFoundError: No module named '(beam_jobs[\w.]*)'")
CAUSE = re.compile(
    r"^\s*(?:Caused by: )?((?:[\w$]+\.)*_?[A-Z]\w*(?:Error|Exception|Failed): .*)", re.M
)
"""A line that names an exception, of Python or of Java."""
LOST_ON_ENGINE = re.compile(
    r"Heartbeat of TaskManager|TaskExecutor is shutting down|StatusCode\.UNAVAILABLE"
    r"|Channel closed prematurely|RemoteTransportException|RecipientUnreachableException"
    r"|NoResourceAvailableException|StatusRuntimeException: CANCELLED"
)
"""Of Flink's and Beam's messages about workers that are gone: another attempt has new ones."""
SLOT_TIMEOUT = re.compile(r"TimeoutException: Timeout has occurred: (\d+) ms")
"""What is left in Beam's message of Flink's NoResourceAvailableException: milliseconds."""
LOST_MASTER = re.compile(
    r"FlinkJobNotFoundException|(?:Connect|NoRouteToHost|ConnectTimeout|RestHandler)Exception: "
    r"|Connection refused|retries has been exhausted|leader election|FencingTokenException"
)
"""Of what Flink's client says where the JobManager is gone, or is another one that knows no job."""
JOB_STATE = re.compile(r"^Pipeline \S+ failed in state \w+: ")
"""What Beam says before the engine's cause."""
RPC_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.M)
"""What gRPC says of an error, below the line that names it."""
CANCEL_SECONDS = 10.0
"""Until the engine has the job that is to be cancelled: the guard's grace is 15 s."""
WORKER_THREADS = (
    *("run_worker", "beam_control_read", "read_grpc_client_inputs"),
    "wait_until_finish_read",
)
"""Threads that die with their worker, or the last one with the job server."""


class WorkerLost(TransientError):
    """A worker process died; what is done is kept, so the same command continues."""


def run_beam_graph(
    options: PipelineOptions,
    build: Callable[[beam.Pipeline], Any],
    output: str,
    poll: Callable[[], None] = lambda: None,
) -> Any:
    """Build and run a graph that writes to `output`; return Beam's result. `poll` is called twice a
    second, or less often where it takes long.
    """
    if has_job_server(options):
        name_job(options, output)
    if not has_workers_elsewhere(options):
        return _run_to_end(options, build, poll)

    with leave_probe(output) as probe:

        def build_checked(pipeline: beam.Pipeline) -> None:
            add_worker_check(pipeline, probe)
            build(pipeline)

        return _run_to_end(options, build_checked, poll)


def _run_to_end(
    options: PipelineOptions, build: Callable[[beam.Pipeline], Any], poll: Callable[[], None]
) -> Any:
    outcome: dict[str, Any] = {}
    late: list[Exception] = []
    ended, lost, submitted = threading.Event(), threading.Event(), threading.Event()

    def run_pipeline() -> None:
        try:
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            follow = (options, ended, late.append)
            threading.Thread(target=watch_job_server, args=follow, daemon=True).start()
            outcome["result"] = pipeline.run()
            submitted.set()
            if not is_staged_only(options):
                threading.Thread(target=follow_flink_job, args=follow, daemon=True).start()
                outcome["result"].wait_until_finish()
        except BaseException as error:
            outcome["error"] = error
        finally:
            ended.set()

    def notice_death(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else ""
        if name.startswith("run_worker"):
            outcome["lost"] = args.exc_value
            lost.set()
            ended.set()
        elif not name.startswith(WORKER_THREADS):
            usual_hook(args)

    tune_memory()
    usual_hook = threading.excepthook
    threading.excepthook = notice_death
    others = set(list_children())
    try:
        with fork_workers(count_processes(options)):
            threading.Thread(target=run_pipeline, name="graph", daemon=True).start()
            next_poll = 0.0
            while not ended.wait(POLL_SECONDS):
                if (began := time.monotonic()) >= next_poll:
                    look_quietly(poll)
                    took = time.monotonic() - began
                    next_poll = began + min(POLL_PAUSE * took, MOST_POLL_PAUSE)
                if late:
                    raise late[0]
            if "error" in outcome:
                lost.wait(NOTICE_SECONDS)
    except BaseException:
        if not is_local(options):
            deadline = time.monotonic() + CANCEL_SECONDS
            if submitted.wait(CANCEL_SECONDS):
                cancel_job(options, outcome["result"], deadline)
        raise
    finally:
        if "result" in outcome and "error" not in outcome:
            threading.excepthook = usual_hook
        else:  # the hook stays: the runner's threads go on dying of their lost workers
            kill_processes(set(list_children()) - others)
    if "lost" in outcome:
        raise WorkerLost(
            f"{outcome['lost']}; the units that are done are kept: run the same command to continue"
        )
    if "error" in outcome:
        error = outcome["error"]
        if is_local(options):
            raise translate_error(error) or error
        told = translate_engine_error(error)
        if isinstance(told, TransientError):  # a server of the engine may be gone, and the job not
            cancel_flink_job(options, CANCEL_SECONDS)
        raise told or error
    return outcome["result"]


def look_quietly(poll: Callable[[], None]) -> None:
    """Look at what is done; a store that is away, which the workers wait for, ends no job."""
    try:
        poll()
    except Exception as error:  # each store's package has exceptions of its own
        if not is_network_error(error):
            raise


def cancel_job(options: PipelineOptions, result: Any, deadline: float) -> None:
    """Cancel a job on its engine; return at the deadline, by the clock of time.monotonic.

    Beam waits for ever for the answer of a job server whose host is gone.
    """

    def cancel() -> None:
        with suppress(Exception):  # it is over, or the engine is away
            result.cancel()

    asking = threading.Thread(target=cancel, daemon=True)
    asking.start()
    cancel_flink_job(options, deadline - time.monotonic())
    asking.join(max(0.0, deadline - time.monotonic()))


def start_clock() -> Callable[[], dict[str, Any]]:
    """Return a function that returns the seconds since, and the CPU seconds of this process and of
    its children that are over.
    """
    started, cpu = time.monotonic(), sum(os.times()[:4])
    return lambda: {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(sum(os.times()[:4]) - cpu, 3),
    }


def add_last_step(units: beam.PCollection, write_totals: Callable[..., None], plan: Any) -> None:
    """Let the graph of a template, which no command waits for, end with `write_totals(number of
    units, plan)`.
    """
    _ = (
        units
        | "Count units" >> beam.combiners.Count.Globally()
        | "Write totals" >> beam.Map(write_totals, plan)
    )


def sort_largest_first(things: Iterable[Any], size: Callable[[Any], int]) -> list[Any]:
    """Return things with the largest first.

    FnApiRunner deals elements out to its workers in turn, in this order: each gets as much to do.
    """
    return sorted(things, key=size, reverse=True)


def translate_error(error: BaseException) -> Exception | None:
    """Return the mistake, failure or full disk that a worker met; None for any other error.

    From another process errors come as text.
    """
    if isinstance(error, UserError | JobFailed):
        return error
    if match := ERROR_TEXT.search(str(error)):
        return ERROR_KINDS[match[1]](match[2].split(" [while running")[0].strip())
    if match := NETWORK.search(str(error)):
        return TransientError(
            f"{match[0].strip()}; what is done is kept, run the same command to continue"
        )
    if match := DISK_FULL.search(str(error)):
        return JobFailed(
            f"{match[0]}: make room; what is done is kept, run the same command to continue"
        )
    return None


def translate_engine_error(error: BaseException) -> Exception | None:
    """Return why a job on an engine elsewhere failed, in one line."""
    text = str(error)
    if known := translate_error(error):
        return known
    if isinstance(error, grpc.RpcError):
        return TransientError(
            f"the engine's job server went away: {error.details() or error.code()}; what is done "
            "is kept, run the same command to continue"
        )
    if match := MISSING_CODE.search(text):
        return UserError(
            f"the engine's Python workers have no {match[1]}; install there what is installed here"
        )
    causes = RPC_DETAILS.findall(text) or CAUSE.findall(text) or text.strip().splitlines() or [""]
    cause = JOB_STATE.sub("", causes[-1].strip())
    if LOST_MASTER.search(text):
        return TransientError(
            f"the engine's JobManager went away: {cause}; what is done is kept, run the same "
            "command to continue"
        )
    if LOST_ON_ENGINE.search(text):
        return TransientError(
            f"the engine lost or did not reach a worker: {cause}; run the same command to continue"
        )
    if match := SLOT_TIMEOUT.search(text):
        return TransientError(
            f"the engine had too few free slots for {int(match[1]) / 1000:.0f} s: other jobs hold "
            "them, or a TaskManager is gone; run the same command to continue"
        )
    if re.search(r"in state (CANCELLED|CANCELLING|STOPPED)", text):
        return JobFailed("the job was cancelled on the engine")
    return JobFailed(f"the engine's job failed: {cause}") if "in state FAILED" in text else None


def list_children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def kill_processes(processes: set[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
