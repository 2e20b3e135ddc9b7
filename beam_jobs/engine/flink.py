"""A Flink cluster behind Beam's job server: asked about the job by its REST API, at
`--flink_master`, until it ends. The job server only stops waiting for a job that is cancelled.
"""

import json
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

import grpc
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, name_setting
from amazon_electra.beam_jobs.core.progress import announce_job
from amazon_electra.beam_jobs.engine.failures import AGAIN, describe_failure

CONNECT_SECONDS = 5.0
SETTLE_SECONDS = 6.0  # Flink's answers are up to three seconds old (`web.refresh-interval`)
AWAY_SECONDS = 120.0  # how long a JobManager may give no answer before the job is given up
# errors of a server that is away, or is not Flink
NO_ANSWER = (OSError, HTTPException, ValueError, LookupError, TypeError)


def check_job_server(address: str, setting: str) -> None:
    """Raise TransientError unless a job server answers: Beam waits for one without an end."""
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            where = name_setting(setting, address)
            why = "no Beam job server answers at this HOST:PORT; Flink's own is `flink_master`"
            raise TransientError(f"{where}: {why}") from None


def find_address(options: PipelineOptions) -> str:
    """Return the address of Flink's REST API; empty where the options do not name it."""
    master = (options.view_as(FlinkRunnerOptions).flink_master or "").rstrip("/")
    scheme = "" if "://" in master else "http://"
    return f"{scheme}{master}" if ":" in master else ""


def ask(address: str, path: str, method: str = "GET") -> Any:
    """Return what Flink's REST API answers; raise one of NO_ANSWER where it does not."""
    request = urllib.request.Request(f"{address}/{path}", method=method)
    with urllib.request.urlopen(request, timeout=CONNECT_SECONDS) as answer:
        return json.load(answer)


@dataclass
class FlinkJob:
    """The job of this command, as Flink's REST API reports it."""

    address: str  # of the JobManager's REST API (find_address)
    name: str  # flink's name of the job begins with it
    id: str = ""  # empty until Flink has the job: the job server hands it 150 MB of jars before
    answered: float = field(default_factory=time.monotonic)

    def has_finished(self, patience: float = AWAY_SECONDS) -> bool:
        """Ask whether the job has finished; announce its page once it is there. Raises JobFailed or
        what the workers raised, and TransientError if the JobManager is away so many seconds.
        """
        manager = f"the engine's JobManager at {self.address}"
        try:
            own = self._find()
        except NO_ANSWER as error:
            if (seconds := time.monotonic() - self.answered) < patience:
                return False
            why = f"gives no answer for {seconds:.0f} s: {error}"
            raise TransientError(f"{manager} {why}; {AGAIN}") from None
        self.answered = time.monotonic()
        if own is None and self.id:
            raise TransientError(f"{manager} has forgotten the job; {AGAIN}")
        if own and not self.id:
            self.id = own["jid"]
            announce_job(f"{self.address}/#/job/running/{self.id}/overview")
        state = own["state"] if own else ""
        if state == "FAILED":
            raise describe_failure(self._read_stacktraces())
        if state == "CANCELED":
            raise JobFailed("the job was cancelled on Flink")
        return bool(state == "FINISHED")

    def raise_failure(self) -> None:
        """Raise why the job has failed, once the job server has given it up, if Flink knows."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline and not self.has_finished(patience=0.0) and self.id:
            time.sleep(0.5)

    def cancel(self, seconds: float) -> None:
        """Cancel the job once Flink has it, if that is within the time."""
        deadline = time.monotonic() + seconds
        while not self.id:
            with suppress(*NO_ANSWER):
                self.id = (self._find() or {}).get("jid", "")
            if not self.id:
                if time.monotonic() >= deadline:
                    return
                time.sleep(0.5)
        with suppress(*NO_ANSWER):  # it is over, or Flink is away
            ask(self.address, f"jobs/{self.id}?mode=cancel", "PATCH")

    def _find(self) -> dict[str, Any] | None:
        """Return the job as Flink has it; raise one of NO_ANSWER where it does not say."""
        jobs = ask(self.address, "jobs/overview")["jobs"]
        return next((job for job in jobs if job["name"].startswith(self.name)), None)

    def _read_stacktraces(self) -> str:
        with suppress(*NO_ANSWER):
            answer = ask(self.address, f"jobs/{self.id}/exceptions")
            newest = answer["exceptionHistory"]["entries"][0]
            every = [newest, *newest.get("concurrentExceptions", ())]
            return "\n".join(one["stacktrace"] for one in every)
        return ""
