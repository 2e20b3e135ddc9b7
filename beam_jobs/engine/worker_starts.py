"""Notices a Python worker that Flink has asked for and that does not come.

Where none can start, say because `python` beside a TaskManager has no apache_beam, Beam waits for
ever: it says so in the TaskManager's log alone, every two minutes (ExternalEnvironmentFactory, Beam
2.62.0). Flink's REST API shows what the threads of each TaskManager do.
"""

import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException

from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from beam_jobs.engine.flink_jobs import (
    announce_flink_job,
    ask_flink,
    cancel_older_jobs,
    find_flink_address,
)
from beam_jobs.job.errors import TransientError

START_SECONDS = 120.0
"""More than a worker needs to start: six on an idle core, 22 on a quarter of one."""
LOOK_SECONDS = 10.0
"""What the threads of one TaskManager do is a tenth of a megabyte."""
WAITING = re.compile(
    r"\.fnexecution\.(control\.\w*ControlClientPool|environment\.\w+EnvironmentFactory)\."
)
"""In the stack of a thread that has asked for a worker."""
HOST = re.compile(r"@([^:/]+)")
"""In the address of a TaskManager."""
Thread = tuple[str, str]
"""The host of its TaskManager, and its name."""


def follow_flink_job(
    options: PipelineOptions, ended: threading.Event, notice: Callable[[Exception], None]
) -> None:
    """Report the page of the job in Flink's UI, cancel older jobs of its output folder, and give
    `notice` an error once the job has waited too long for a Python worker, if the options say where
    Flink is. Return then, or when the job has ended.
    """
    job, address = announce_flink_job(options), find_flink_address(options)
    since = dict[Thread, float]()
    while job:
        for older in cancel_older_jobs(address, job):
            print(f"cancelled Flink's job {older}, of a command that is gone", file=sys.stderr)
        if ended.wait(LOOK_SECONDS):
            return
        now = time.monotonic()
        since = {thread: since.get(thread, now) for thread in list_waiting(address, job)}
        late = [host for (host, _), began in since.items() if now - began >= START_SECONDS]
        if late:
            pool = options.view_as(PortableOptions).environment_config
            notice(describe_late_worker(str(pool), late[0]))
            return


def list_waiting(address: str, job: str) -> list[Thread]:
    """Return the threads of a job that wait for a Python worker; none where Flink does not say."""
    found = []
    with suppress(OSError, HTTPException, ValueError, KeyError):
        vertices = ask_flink(address, f"jobs/{job}")["vertices"]
        tasks = tuple(one["name"] for one in vertices if one["status"] == "RUNNING")
        for manager in ask_flink(address, "taskmanagers")["taskmanagers"]:
            host = HOST.search(manager["path"])
            threads = ask_flink(address, f"taskmanagers/{manager['id']}/thread-dump")["threadInfos"]
            for thread in threads:
                name, stack = thread["threadName"], thread["stringifiedThreadInfo"]
                if name.startswith(tasks) and WAITING.search(stack):
                    found.append((host[1] if host else manager["id"], name))
    return found


def describe_late_worker(pool: str, host: str) -> TransientError:
    """Return the error of a job whose worker does not come."""
    return TransientError(
        f"no Python worker starts at {pool} beside the TaskManager on {host}, for "
        f"{START_SECONDS:.0f} s now: the log of the worker pool there says why (a `python` on its "
        "PATH without apache_beam, or another network than the TaskManager's); then run the same "
        "command to continue"
    )
