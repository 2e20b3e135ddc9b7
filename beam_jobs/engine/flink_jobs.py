"""Finds, announces and cancels the jobs of a Flink cluster, by its REST API.

A job is named after its output folder. One run at a time makes a stage's folder (the store has a
lock or a lease for it), so an older job of the same folder is one whose command was killed, or lost
with its host, before it could cancel it: it goes on, and holds slots for which the next attempt
waits. Of two commands that a user gives by hand for one folder, the later one wins.
"""

import json
import re
import secrets
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
)

from beam_jobs.engine.job_server import CONNECT_SECONDS, connect_to_address
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import hash_bytes
from beam_jobs.job.progress import announce_job

SECONDS_TO_APPEAR = 120
"""Until Flink has a job: the job server hands it all its jars before, 150 MB."""
ENDING = {"FINISHED", "CANCELED", "FAILED", "CANCELLING", "FAILING"}
"""States of a job that holds no slot, or soon none."""
OWN_NAME = re.compile(r"beam-jobs-[0-9a-f]{12}-")
"""How a name begins that is not a user's: with the output folder."""


def name_job(options: PipelineOptions, output: str) -> None:
    """Name a job that has no name yet `beam-jobs-FOLDER-OWN`: digits of its output folder, and its
    own.
    """
    cloud = options.view_as(GoogleCloudOptions)  # whose name of the job all engines read
    folder = hash_bytes(output.rstrip("/").encode())[:12]
    cloud.job_name = cloud.job_name or f"beam-jobs-{folder}-{secrets.token_hex(4)}"


def announce_flink_job(options: PipelineOptions) -> str:
    """Report the page of the job in Flink's UI, if the options say where Flink is; return the job's
    id, empty if Flink has not shown it.

    Flink has the job seconds after the job server has taken it.
    """
    if not (address := find_flink_address(options)):
        return ""
    job = wait_for_flink_job(options, address, SECONDS_TO_APPEAR)
    announce_job(f"{address}/#/{f'job/running/{job}/' * bool(job)}overview")
    return job


def cancel_flink_job(options: PipelineOptions, seconds: float) -> None:
    """Cancel the job on Flink itself once it has appeared there, if the options say where that is.

    Beam's job server (2.62.0) only stops waiting for a job that is cancelled; Flink goes on.
    """
    if not (address := find_flink_address(options)):
        return
    if job := wait_for_flink_job(options, address, seconds):
        cancel_by_id(address, job)


def cancel_by_id(address: str, job: str) -> None:
    """Cancel a job; do nothing where Flink is away or the job is over."""
    request = urllib.request.Request(f"{address}/jobs/{job}?mode=cancel", method="PATCH")
    with suppress(OSError, HTTPException):
        urllib.request.urlopen(request, timeout=CONNECT_SECONDS).close()


def cancel_older_jobs(address: str, job: str) -> list[str]:
    """Cancel the jobs that Flink had before this one for the same output folder; return their ids.

    A job that a user has named is left alone.
    """
    cancelled = []
    with suppress(OSError, HTTPException, ValueError, KeyError):
        jobs = {one["jid"]: one for one in ask_flink(address, "jobs/overview")["jobs"]}
        own = jobs[job]
        if match := OWN_NAME.match(own["name"]):
            for one in jobs.values():
                is_older = one["start-time"] < own["start-time"] and one["state"] not in ENDING
                if is_older and one["name"].startswith(match[0]):
                    cancel_by_id(address, one["jid"])
                    cancelled.append(one["jid"])
    return cancelled


def find_flink_address(options: PipelineOptions) -> str:
    """Return the address of Flink's REST API; empty: the options do not name it."""
    master = options.view_as(FlinkRunnerOptions).flink_master or ""
    if ":" not in master:
        return ""
    return (master if "://" in master else f"http://{master}").rstrip("/")


def wait_for_flink_job(options: PipelineOptions, address: str, seconds: float) -> str:
    """Return the id of the job of these options once Flink has it; empty: not within the time."""
    name = options.view_as(GoogleCloudOptions).job_name
    deadline = time.monotonic() + seconds
    while not (job := find_flink_job(address, name)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return job


def find_flink_job(address: str, name: str) -> str:
    """Return the id of the job whose name begins like this; empty: Flink knows none."""
    with suppress(OSError, HTTPException, ValueError, KeyError):
        jobs = ask_flink(address, "jobs/overview")["jobs"]
        return next((job["jid"] for job in jobs if job["name"].startswith(name)), "")
    return ""


def read_flink_overview(address: str, setting: str) -> dict[str, Any]:
    """Return what a JobManager at HOST:PORT says of its cluster: "slots-total", "flink-version"."""
    connect_to_address(address, setting)
    with suppress(OSError, HTTPException, ValueError, TypeError):
        overview: dict[str, Any] = ask_flink(f"http://{address}", "overview")
        if "slots-total" in overview:
            return overview
    raise UserError(
        f"{setting} {address} answers, but is no JobManager of Flink: give its REST address"
    )


def ask_flink(address: str, path: str) -> Any:
    """Return what Flink's REST API answers."""
    with urllib.request.urlopen(f"{address}/{path}", timeout=CONNECT_SECONDS) as answer:
        return json.load(answer)
