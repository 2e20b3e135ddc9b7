"""Runs a Beam graph so that it always ends, in a thread of its own while this one looks at what is
done. FnApiRunner waits for ever for a worker process that a signal has killed; only the thread of
Beam that started it notices, and ends with an exception: that ends the job.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import apache_beam as beam
import grpc
import psutil
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineState

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, is_network_error, refuse
from amazon_electra.beam_jobs.core.progress import Progress, announce_job
from amazon_electra.beam_jobs.engine import beam_options, flink
from amazon_electra.beam_jobs.engine.failures import AGAIN, describe_failure, translate_error
from amazon_electra.beam_jobs.engine.flink import FlinkJob

POLL_SECONDS = 0.5
POLL_PAUSE, MAX_POLL_PAUSE = 100, 60.0  # times the last poll, and seconds at most, to the next
NOTICE_SECONDS = 2.0  # time for the runner to end by itself once one of its threads has died
CANCEL_SECONDS = 10.0  # until the engine has the job to cancel: a job has a grace of 20 s


class GraphThread(threading.Thread):
    """Runs a pipeline to its end; `result` is Beam's, `error` what it raised."""

    def __init__(self, pipeline: beam.Pipeline, waits: bool) -> None:
        super().__init__(name="graph", daemon=True)
        self.result: Any = None
        self.error: BaseException | None = None
        self._pipeline, self._waits = pipeline, waits

    def run(self) -> None:
        try:
            self.result = self._pipeline.run()
            if self._waits:
                self.result.wait_until_finish()
        except BaseException as error:
            self.error = error


def run_job(
    what: str,
    options: PipelineOptions,
    build: Callable[[beam.Pipeline], Any],
    units: int,
    count: Callable[[], int],
) -> str:
    """Run a job's graph, and show how many of its units `count` finds done; return the engine where
    it was only staged, else nothing.
    """
    engine = str(options.view_as(StandardOptions).runner)
    with Progress(units, "units", f"{what} ({engine})") as bar:

        def look() -> None:
            done = count()
            bar.total = max(bar.total or 0, done)
            bar.update(done)

        run_beam_graph(options, build, look)
        if beam_options.is_staged_only(options):
            return engine
        look()
    return ""


def run_beam_graph(
    options: PipelineOptions,
    build: Callable[[beam.Pipeline], Any],
    poll: Callable[[], None] = lambda: None,
) -> None:
    """Build and run a graph; `poll` is called twice a second, or less often where it takes long."""
    cloud = options.view_as(GoogleCloudOptions)  # whose name of the job all engines read
    if beam_options.has_job_server(options):  # Flink is asked for it by its name
        cloud.job_name = cloud.job_name or f"beam-jobs-{secrets.token_hex(8)}"
    runner = options.view_as(StandardOptions).runner
    with refuse(ValueError, message="{}", field="runner", value=runner):
        pipeline = beam.Pipeline(options=options)
    build(pipeline)
    graph = GraphThread(pipeline, waits=not beam_options.is_staged_only(options))
    if not beam_options.is_local(options):
        run_elsewhere(graph, options, poll)
    elif not beam_options.has_one_process(options):
        run_with_processes(graph, poll)
    else:
        for _ in follow(graph, poll):
            pass
        if graph.error:
            raise translate_error(graph.error) or graph.error


def follow(graph: GraphThread, poll: Callable[[], None]) -> Iterator[None]:
    """Start a graph, and yield while it runs, after a poll; a store that is away ends no job."""
    next_poll = 0.0
    graph.start()
    while graph.is_alive():
        graph.join(POLL_SECONDS)
        if (began := time.monotonic()) >= next_poll:
            try:
                poll()
            except Exception as error:  # each store's package has exceptions of its own
                if not is_network_error(error):
                    raise
            took = time.monotonic() - began
            next_poll = began + min(POLL_PAUSE * took, MAX_POLL_PAUSE)
        yield


def run_with_processes(graph: GraphThread, poll: Callable[[], None]) -> None:
    """Run a graph on Beam's local worker processes; raise TransientError where one dies."""
    died: list[BaseException] = []
    has_died = threading.Event()
    others = set(psutil.Process().children(recursive=True))

    def notice_death(args: threading.ExceptHookArgs) -> None:
        # an RpcError says that a thread which reads from a worker lost its connection
        if args.exc_value and not isinstance(args.exc_value, grpc.RpcError):
            died.append(args.exc_value)
            has_died.set()

    usual_hook, threading.excepthook = threading.excepthook, notice_death
    try:
        for _ in follow(graph, poll):
            if died:
                break
        graph.join(NOTICE_SECONDS)
        if graph.error and (known := translate_error(graph.error)):
            raise known
        if graph.error:  # of a lost connection, maybe, before the death of its worker is noticed
            has_died.wait(NOTICE_SECONDS)
        if died and not graph.result:
            raise TransientError(f"{died[0]}; {AGAIN}")
        if graph.error:
            raise graph.error
        threading.excepthook = usual_hook  # else it stays: the runner's threads go on dying
    finally:
        if threading.excepthook is notice_death:
            for process in set(psutil.Process().children(recursive=True)) - others:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def run_elsewhere(graph: GraphThread, options: PipelineOptions, poll: Callable[[], None]) -> None:
    """Run a graph on an engine elsewhere; cancel its job where it does not end well."""
    cloud = options.view_as(GoogleCloudOptions)
    address = flink.find_address(options) if beam_options.has_job_server(options) else ""
    job = FlinkJob(address, str(cloud.job_name)) if address else None
    has_page = beam_options.is_dataflow(options) and not beam_options.is_staged_only(options)
    try:
        for _ in follow(graph, poll):
            if has_page and graph.result:
                page = f"{cloud.region}/{graph.result.job_id()}?project={cloud.project}"
                announce_job(f"https://console.cloud.google.com/dataflow/jobs/{page}")
                has_page = False
            if graph.is_alive() and job and job.has_finished():
                return
        if graph.error:
            raise explain_error(graph, graph.error, job)
    except BaseException:
        cancel_job(graph, job)
        raise


def explain_error(graph: GraphThread, error: BaseException, job: FlinkJob | None) -> BaseException:
    """Return why a graph of an engine ended with an error; raise what Flink reports."""
    if isinstance(error, grpc.RpcError):
        said = error.details() if isinstance(error, grpc.Call) else error
        return TransientError(f"the engine's job server went away: {said}; {AGAIN}")
    if graph.result is None:
        return translate_error(error) or error
    if job:
        job.raise_failure()
    with suppress(Exception):  # the engine may be away
        if graph.result.state == PipelineState.CANCELLED:
            return JobFailed("the job was cancelled on the engine")
    return describe_failure(str(error))


def cancel_job(graph: GraphThread, job: FlinkJob | None) -> None:
    """Cancel the job on its engine, within CANCEL_SECONDS: a job server may never answer."""

    def cancel() -> None:
        while graph.is_alive() and not graph.result:
            graph.join(POLL_SECONDS)
        with suppress(Exception):  # it is over, or the engine is away
            graph.result.cancel()

    if job:
        job.cancel(CANCEL_SECONDS)
        return
    asking = threading.Thread(target=cancel, daemon=True)
    asking.start()
    asking.join(CANCEL_SECONDS)


class Spread(beam.PTransform):
    """Deals elements out to all workers; no step, which takes 50 ms, in one process."""

    def __init__(self, options: PipelineOptions) -> None:
        super().__init__()
        self.has_one_process = beam_options.has_one_process(options)

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        return elements if self.has_one_process else elements | beam.Reshuffle()


def start_clock() -> Callable[[], dict[str, Any]]:
    """Return a function that returns the seconds since, of the clock and of all CPUs."""
    started, cpu = time.monotonic(), sum(os.times()[:4])
    return lambda: {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(sum(os.times()[:4]) - cpu, 3),
    }


def sort_largest_first(things: Iterable[Any], size: Callable[[Any], int]) -> list[Any]:
    """Return things with the largest first: FnApiRunner deals them out to its workers in turn."""
    return sorted(things, key=size, reverse=True)
