"""Worker processes that are forked from the job with all imports done, instead of started anew.

Beam starts each local worker as a Python of its own, which spends a CPU second or more on imports.
Here a job forks them before its graph runs, while there is no thread of gRPC in the process (which
no fork survives); each waits until Beam wants a worker and then serves as any other. They are
forked only by a job's own command on Linux: a program that calls a job has threads of its own.
Where none waits, Beam's way is taken.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from apache_beam.portability import python_urns
from apache_beam.portability.api import endpoints_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    SubprocessSdkWorkerHandler,
    WorkerHandler,
)
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

from beam_jobs.engine.local_command import is_local_command

WaitingWorker = tuple[BaseProcess, Connection]

_waiting: list[WaitingWorker] = []
"""Workers that Beam has not wanted yet."""


@contextmanager
def fork_workers(count: int) -> Iterator[None]:
    """Keep `count` workers ready within the context, where this process may fork."""
    if not (sys.platform == "linux" and is_local_command(sys.argv)):
        count = 0
    fork = multiprocessing.get_context("fork")
    for _ in range(count):
        receive, send = fork.Pipe(duplex=False)
        inherited = [send, *(pipe for _, pipe in _waiting)]
        worker = fork.Process(target=_wait_and_serve, args=(receive, inherited), daemon=True)
        worker.start()
        receive.close()
        _waiting.append((worker, send))
    try:
        yield
    finally:
        while _waiting:
            unused, pipe = _waiting.pop()
            pipe.close()
            unused.join()


def _wait_and_serve(receive: Connection, inherited: list[Connection]) -> None:
    """Serve as a worker with the environment that arrives; end if the job does before that."""
    for pipe in inherited:  # else the job's end would not end what they lead to
        pipe.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.excepthook = threading.__excepthook__
    try:
        environment = receive.recv()
    except EOFError:
        return
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)  # errors reach the job
    os.environ.update(environment)
    sdk_worker_main.main([])


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class ForkedWorkerHandler(SubprocessSdkWorkerHandler):
    """Hands Beam a worker that waits; starts one as Beam does where none does."""

    def start_worker(self) -> None:
        if not _waiting:
            super().start_worker()
            return
        worker, send = _waiting.pop()
        send.send(self._describe_environment())
        send.close()
        # graph_runner.py knows the thread by this name, which is Beam's
        self.worker_thread = threading.Thread(
            name="run_worker", target=_wait_until_ended, args=(worker,)
        )
        self.worker_thread.start()

    def _describe_environment(self) -> dict[str, str]:
        """Return what Beam's local_job_service.SubprocessSdkWorker tells a worker, without logs."""
        control = endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
        options = self.provision_info.provision_info.pipeline_options
        return {
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(control),
            "PIPELINE_OPTIONS": json_format.MessageToJson(options),
            "WORKER_ID": self.worker_id,
        }


def _wait_until_ended(worker: BaseProcess) -> None:
    """Wait for a worker; raise RuntimeError in Beam's words if it did not end by itself."""
    worker.join()
    if worker.exitcode:
        raise RuntimeError(f"Worker subprocess exited with return code {worker.exitcode}")
