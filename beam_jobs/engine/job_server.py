"""Checks that a Beam job server can be reached, and tells where one sees the job that it runs.

A job server takes graphs over gRPC and runs them on an engine: Beam's for Flink on a cluster of
Flink, Beam's own (`apache_beam.runners.portability.local_job_service_main`) by itself.
"""

import json
import shutil
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from beam_jobs.job.errors import TransientError, UserError
from beam_jobs.job.progress import announce_job

CONNECT_SECONDS = 5.0
LOOK_SECONDS, AWAY_SECONDS = 20.0, 120.0
"""How often a job server is asked whether it is there, and how long it may give no answer."""
SECONDS_TO_APPEAR = 120
"""Until Flink has a job: the job server hands it all its jars before, 150 MB."""
JAVA_RUNNERS = {"FlinkRunner": "flink_job_server_jar"}
"""Runners that start a job server in Java here, and the option with its jar."""


def check_job_server(options: PipelineOptions) -> None:
    """Raise an error in one line if the job server of these options cannot take a graph.

    An address that is none, a server of another kind, and no Java are the user's mistakes; a
    server that does not answer may be there again soon.
    """
    runner = options.view_as(StandardOptions).runner
    portable = options.view_as(PortableOptions)
    if runner in JAVA_RUNNERS and not portable.job_endpoint and not shutil.which("java"):
        raise UserError(
            f"--runner {runner}: starts a job server in Java, and there is no java on PATH; "
            "install Java 17, or start the job server elsewhere and give --runner PortableRunner "
            "--job_endpoint HOST:PORT"
        )
    if portable.job_endpoint and portable.job_endpoint != "embed":
        ask_job_server(portable.job_endpoint, "--job_endpoint")


def connect_to_address(address: str, setting: str) -> None:
    """Raise an error unless something listens at HOST:PORT."""
    host, port = split_address(address, setting)
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise TransientError(f"{setting} {address} cannot be reached: {why}") from None


def split_address(address: str, setting: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raise UserError if it is not that."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536 or "/" in host:
        raise UserError(f"{setting} {address}: write HOST:PORT")
    return host, int(port)


def ask_job_server(address: str, setting: str) -> None:
    """Raise an error unless a Beam job server answers at HOST:PORT."""
    connect_to_address(address, setting)
    with grpc.insecure_channel(address) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            service.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=CONNECT_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:  # it speaks, and keeps no list
                return
            raise UserError(
                f"{setting} {address} answers, but is no Beam job server; the address of Flink "
                "itself belongs to flink_master"
            ) from None


def list_job_names(address: str) -> set[str] | None:
    """Return the names of the jobs that a job server knows; None where it does not answer."""
    with grpc.insecure_channel(address) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            known = service.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=CONNECT_SECONDS)
        except grpc.RpcError as error:
            return set() if error.code() == grpc.StatusCode.UNIMPLEMENTED else None
    return {job.job_name for job in known.job_info}


def watch_job_server(
    options: PipelineOptions, ended: threading.Event, notice: Callable[[Exception], None]
) -> None:
    """Give `notice` an error once the job server of these options has been away for AWAY_SECONDS or
    has forgotten the job. Return then, or when the job has ended.

    Where a server's host is gone nothing closes its connections, and Beam waits for ever.
    """
    address = options.view_as(PortableOptions).job_endpoint
    if not address or address == "embed":
        return
    job, is_known = options.view_as(GoogleCloudOptions).job_name, False
    answered = time.monotonic()
    while not ended.wait(LOOK_SECONDS):
        names = list_job_names(address)
        now = time.monotonic()
        if names is not None:
            answered = now
            if is_known and job not in names:
                notice(describe_lost_server(address, "has forgotten the job"))
                return
            is_known = job in names
        elif now - answered >= AWAY_SECONDS:
            notice(describe_lost_server(address, f"gives no answer for {now - answered:.0f} s"))
            return


def describe_lost_server(address: str, what: str) -> TransientError:
    """Return the error of a job whose job server is gone."""
    return TransientError(
        f"the engine's job server at {address} {what}; what is done is kept, run the same command "
        "to continue"
    )


def announce_flink_job(options: PipelineOptions) -> None:
    """Report the page of the job in Flink's UI, if the options say where Flink is.

    Flink has the job seconds after the job server has taken it.
    """
    if address := find_flink_address(options):
        job = wait_for_flink_job(options, address, SECONDS_TO_APPEAR)
        announce_job(f"{address}/#/{f'job/running/{job}/' * bool(job)}overview")


def cancel_flink_job(options: PipelineOptions, seconds: float) -> None:
    """Cancel the job on Flink itself once it has appeared there, if the options say where that is.

    Beam's job server (2.62.0) only stops waiting for a job that is cancelled; Flink goes on.
    """
    if not (address := find_flink_address(options)):
        return
    if job := wait_for_flink_job(options, address, seconds):
        request = urllib.request.Request(f"{address}/jobs/{job}?mode=cancel", method="PATCH")
        with suppress(OSError, HTTPException):  # Flink is away, or the job is over
            urllib.request.urlopen(request, timeout=CONNECT_SECONDS).close()


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
