"""Checks that a Beam job server can be reached, and notices one that is gone.

A job server takes graphs over gRPC and runs them on an engine: Beam's for Flink on a cluster of
Flink, Beam's own (`apache_beam.runners.portability.local_job_service_main`) by itself.
"""

import shutil
import socket
import threading
import time
from collections.abc import Callable

import grpc
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from beam_jobs.job.errors import TransientError, UserError

CONNECT_SECONDS = 5.0
LOOK_SECONDS, AWAY_SECONDS = 20.0, 120.0
"""How often a job server is asked whether it is there, and how long it may give no answer."""
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
