"""A Flink cluster behind Beam's job server: looked at before a job is sent, and asked about the job
until it ends.

Beam's job server takes a graph over gRPC and hands it to Flink. How the job is, why it failed and
that it shall end is then Flink's matter: its REST API, at `--flink_master HOST:PORT`, has
documented fields for it. Beam's job server (2.62.0) only stops waiting for a job that is cancelled,
and says nothing where its host is gone.

A job is named after its output folder. One run at a time makes a stage's folder (the store has a
lock or a lease for it), so an older job of the same folder is one whose command was killed, or lost
with its host, before it could cancel it: it goes on, and holds slots for which the next attempt
waits. Of two commands that a user gives by hand for one folder, the later one wins.
"""

import json
import re
import secrets
import socket
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
)

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError, name_setting
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.progress import announce_job, format_count
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.beam_jobs.engine.failures import AGAIN, describe_failure

CONNECT_SECONDS = 5.0
SETTLE_SECONDS = 6.0
"""Flink answers with states that are up to three seconds old (`web.refresh-interval`)."""
AWAY_SECONDS = 120.0
"""How long a JobManager may give no answer before the job is given up."""
TRIED_BEAM = "2.62.0"
"""The version of Beam's jars that ran jobs of 2.77.0 (deploy/flink/README.md)."""
BEAM_JAR = re.compile(r"beam-runners-flink-(\d+\.\d+)(?:-job-server)?-(\d[\w.-]*)\.jar$")
"""Beam's jar for a version of Flink, alone or with all that it needs."""
ENDING = {"FINISHED", "CANCELED", "FAILED", "CANCELLING", "FAILING"}
"""States of a job that holds no slot, or soon none."""
NO_ANSWER = (OSError, HTTPException, ValueError, LookupError, TypeError)
"""Errors of a server that is away, or is not Flink."""


def check_job_server(address: str, setting: str) -> None:
    """Raise an error in one line unless a server of gRPC, as Beam's job server is, answers at
    HOST:PORT.

    An address that is none and a server of another kind are the user's mistakes; one that does not
    answer may be there again soon.
    """
    connect(address, setting)
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            raise UserError(
                "answers, but is no Beam job server; the address of Flink itself belongs to "
                "`flink_master`",
                setting,
                address,
            ) from None


def check_cluster(address: str, setting: str, workers: int = 0) -> None:
    """Raise an error in one line unless a JobManager answers at HOST:PORT whose cluster has this
    many slots, and jars of Beam that fit its Flink and the Beam of this process.

    Its class path names the jars where it was started from the same image as the TaskManagers;
    others would fail late, in words about Java's classes.
    """
    connect(address, setting)
    try:
        overview = ask(address, "overview")
        slots, version = int(overview["slots-total"]), str(overview["flink-version"])
        class_path: list[str] = ask(address, "jobmanager/environment")["classpath"]
    except NO_ANSWER:
        raise UserError(
            "answers, but is no JobManager of Flink: give its REST address", setting, address
        ) from None
    for jar in filter(None, map(BEAM_JAR.search, class_path)):
        for_flink, of_beam = jar.groups()
        if not version.startswith(f"{for_flink}."):
            raise UserError(
                f"{jar[0]} is for Flink {for_flink}, and the cluster is Flink {version}; put "
                f"Beam's jars for Flink {'.'.join(version.split('.')[:2])} into its lib folder",
                setting,
                address,
            )
        if of_beam not in (TRIED_BEAM, beam.__version__):
            raise UserError(
                f"{jar[0]} is of Beam {of_beam}, and the jobs have Beam "
                f"{beam.__version__}; take the jars and the job server of {beam.__version__}, or "
                f"of {TRIED_BEAM}, which were tried with it",
                setting,
                address,
            )
    if workers and slots == 0:
        raise UserError("the cluster has no slot; start a TaskManager", setting, address)
    if workers > slots:
        there = format_count(slots, "slot")
        raise UserError(f"the cluster at {address} has {there}", "engine.workers", workers)


def connect(address: str, setting: str) -> None:
    """Raise an error unless something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536 or "/" in host:
        raise UserError("write HOST:PORT", setting, address)
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise TransientError(f"{name_setting(setting, address)} cannot be reached: {why}") from None


def find_address(options: PipelineOptions) -> str:
    """Return HOST:PORT, or https://…, of Flink's REST API; empty: the options do not name it."""
    master = (options.view_as(FlinkRunnerOptions).flink_master or "").removeprefix("http://")
    return master.rstrip("/") if ":" in master else ""


def ask(address: str, path: str, method: str = "GET") -> Any:
    """Return what Flink's REST API answers; raise one of NO_ANSWER where it does not."""
    request = urllib.request.Request(f"{add_scheme(address)}/{path}", method=method)
    with urllib.request.urlopen(request, timeout=CONNECT_SECONDS) as answer:
        return json.load(answer)


def add_scheme(address: str) -> str:
    return address if "://" in address else f"http://{address}"


def name_job(options: PipelineOptions, output: str) -> None:
    """Name a job that has no name yet `beam-jobs-FOLDER-OWN`: digits of its output folder, and its
    own.
    """
    cloud = options.view_as(GoogleCloudOptions)  # whose name of the job all engines read
    folder = hash_bytes(output.rstrip("/").encode())[:12]
    cloud.job_name = cloud.job_name or f"beam-jobs-{folder}-{secrets.token_hex(4)}"


@dataclass
class FlinkJob:
    """The job of this command, as Flink's REST API reports it."""

    address: str
    """Of the JobManager's REST API (find_address)."""
    name: str
    """Flink's name of the job begins with it."""
    id: str = ""
    """Empty until Flink has the job: the job server hands it 150 MB of jars before."""

    def __post_init__(self) -> None:
        self._answered = time.monotonic()

    def has_finished(self) -> bool:
        """Ask whether the job has finished; announce its page and cancel older jobs of its output
        folder once it is there.

        Raises JobFailed or what the workers raised if it has failed or was cancelled, and
        TransientError if the JobManager is away or has forgotten it.
        """
        try:
            jobs = ask(self.address, "jobs/overview")["jobs"]
        except NO_ANSWER as error:
            if (seconds := time.monotonic() - self._answered) < AWAY_SECONDS:
                return False
            raise self._describe_away(f"gives no answer for {seconds:.0f} s: {error}") from None
        self._answered = time.monotonic()
        own = next((job for job in jobs if job["name"].startswith(self.name)), None)
        if own is None:
            if self.id:
                raise self._describe_away("has forgotten the job")
            return False
        if not self.id:
            self.id = own["jid"]
            announce_job(f"{add_scheme(self.address)}/#/job/running/{self.id}/overview")
        self._cancel_older(own, jobs)
        if own["state"] == "FAILED":
            raise self._read_failure()
        if own["state"] == "CANCELED":
            raise JobFailed("the job was cancelled on Flink")
        return bool(own["state"] == "FINISHED")

    def raise_failure(self) -> None:
        """Raise why the job has failed, or that the JobManager is away, once the job server has
        given it up; return if Flink knows no reason.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            try:
                ask(self.address, "overview")
            except NO_ANSWER as error:
                raise self._describe_away(f"gives no answer: {error}") from None
            if self.has_finished() or not self.id:
                return
            time.sleep(0.5)

    def cancel(self, seconds: float) -> None:
        """Cancel the job once Flink has it, if that is within the time."""
        deadline = time.monotonic() + seconds
        while not self.id and time.monotonic() < deadline:
            with suppress(*NO_ANSWER):
                jobs = ask(self.address, "jobs/overview")["jobs"]
                self.id = next((j["jid"] for j in jobs if j["name"].startswith(self.name)), "")
            if not self.id:
                time.sleep(0.5)
        if self.id:
            self._cancel(self.id)

    def _cancel(self, job: str) -> None:
        with suppress(*NO_ANSWER):  # it is over, or Flink is away
            ask(self.address, f"jobs/{job}?mode=cancel", "PATCH")

    def _cancel_older(self, own: dict[str, Any], jobs: list[dict[str, Any]]) -> None:
        """Cancel the jobs that Flink had before this one for the same output folder. A job that a
        user has named is left alone.
        """
        match = re.match(r"beam-jobs-[0-9a-f]{12}-", own["name"])
        for job in jobs if match else ():
            is_older = job["start-time"] < own["start-time"] and job["state"] not in ENDING
            if match and is_older and job["name"].startswith(match[0]):
                self._cancel(job["jid"])
                print(
                    f"cancelled Flink's job {job['jid']}, of a command that is gone",
                    file=sys.stderr,
                )

    def _read_failure(self) -> Exception:
        with suppress(*NO_ANSWER):
            entries = ask(self.address, f"jobs/{self.id}/exceptions")["exceptionHistory"]["entries"]
            newest = entries[0]
            at_once = [one["stacktrace"] for one in newest.get("concurrentExceptions", ())]
            return describe_failure("\n".join([newest["stacktrace"], *at_once]))
        return describe_failure("")

    def _describe_away(self, what: str) -> TransientError:
        return TransientError(f"the engine's JobManager at {self.address} {what}; {AGAIN}")
