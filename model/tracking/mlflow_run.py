"""Mirrors metrics.jsonl in MLflow, and is never in the way. A thread sends what is new every few
seconds; what could not be sent is sent by the next run, points sent twice count once.
"""

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from amazon_electra.beam_jobs.core.files import link_path
from amazon_electra.model.tracking.metrics_log import read_metrics
from amazon_electra.model.tracking.mlflow_client import (
    build_run_address,
    create_client,
    hide_credentials,
    locate_artifacts,
)

EXPERIMENT = "domain-adaptation"
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Makes the UI open on runs and curves."""
FLOW_RUN = "prefect.flow_run_id"
"""Tag of a flow run's parent run, by which the flow run finds it again after a suspension."""
FINGERPRINT = "amazon_electra.fingerprint"
"""Tag of a stage's nested run."""
POLL_SECONDS = 2.0
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 20.0
"""At the end of a run, for what a server that is away did not take; one that answers gets all."""
CANCEL_SECONDS = 5.0
"""At most, for a run that was cancelled: Prefect kills it 30 s after the signal."""
BATCH_METRICS, BATCH_PARAMETERS, PARAMETER_CHARACTERS = 1_000, 100, 6_000
"""MLflow's limits for one request, and for one value."""
OUTSIDE_NAMES = r"[^\w\-. :/]"
"""Characters that MLflow refuses in the name of a metric, and with it the whole batch."""
FINAL_CODES = {
    *("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"),
    *("RESOURCE_ALREADY_EXISTS", "BAD_REQUEST"),
}
FINAL_ERRORS = AttributeError, FileNotFoundError, LookupError, TypeError, ValueError
"""Errors that another attempt would get again, beside FINAL_CODES: the request is dropped."""

log = logging.getLogger("amazon_electra.tracking")


@dataclass
class TrackedRun:
    """A run in MLflow, whose id is known once it was created."""

    name: str
    folder: Path | None = None
    id: str = ""
    sent: int = 0
    """Lines of metrics.jsonl that MLflow has, those too that a resumed job writes again."""
    monitor: Any = None
    """MLflow's sampler of this machine's processors, memory, disks and cards."""


class Tracking:
    """One graph run: a parent run, and a nested one for every folder that is followed."""

    def __init__(self, uri: str, artifacts: str = "") -> None:
        """Prepare the run; a new experiment stores at `artifacts`, or beside the database."""
        self.uri, self._artifacts = uri, artifacts
        self.parent = TrackedRun("")
        self._runs: dict[tuple[str, str], TrackedRun] = {}
        self._followed: list[TrackedRun] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._wake, self._is_ended, self._is_away = threading.Event(), False, False
        self._thread = threading.Thread(target=self._send, name="mlflow", daemon=True)
        self._client: Any = None
        self._experiment_id = ""

    def start(self, name: str, parameters: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Begin the parent run, or continue that of the flow run."""
        self.parent = TrackedRun(name)
        self._thread.start()
        self._ask(lambda: self._create_run(self.parent, parameters, tags))

    @contextmanager
    def follow_folder(
        self, name: str, folder: Path, parameters: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Iterator[TrackedRun]:
        """Mirror metrics and load in a nested run, which a second attempt continues."""
        run = self._runs.setdefault((name, tags.get(FINGERPRINT, "")), TrackedRun(name, folder))
        status = "FAILED"

        def begin() -> None:
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            self._create_run(run, parameters, tags)
            run.monitor = SystemMetricsMonitor(run.id, resume_logging=True, tracking_uri=self.uri)
            run.monitor.start()
            self._followed.append(run)

        def end() -> None:
            self._send_lines(run)
            self._client.set_terminated(run.id, status=status)
            self._followed = [other for other in self._followed if other is not run]
            if run.monitor:
                run.monitor.finish()

        self._ask(begin)
        try:
            yield run
            status = "FINISHED"
        finally:
            self._ask(end)

    def mirror_folder(
        self,
        name: str,
        folder: Path,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
    ) -> None:
        """Mirror a finished folder in a nested run, once."""
        run = TrackedRun(name, folder)

        def mirror() -> None:
            known = self._search_runs({FINGERPRINT: tags[FINGERPRINT]}, name)
            if any(info.status == "FINISHED" for info in known):
                return
            self._create_run(run, parameters, tags)
            self._send_lines(run)
            self._send_metrics(run, [{"step": 0, **metrics}])
            self._client.set_terminated(run.id, status="FINISHED")

        self._ask(mirror)

    def log_metrics(self, metrics: Mapping[str, float], run: TrackedRun | None = None) -> None:
        """Log final numbers, at step 0."""
        line = {"step": 0, "time": time.time(), **metrics}
        self._ask(lambda: self._send_metrics(run or self.parent, [line]))

    def log_folder(self, folder: Path, name: str, run: TrackedRun | None = None) -> None:
        """Log a folder or file as artifact `name`; on this machine the same files, linked."""

        def request() -> None:
            target = run or self.parent
            place = self._client.get_run(target.id).info.artifact_uri
            if place.startswith("file:"):
                link_path(folder, Path(url2pathname(urlsplit(place).path), name))
            elif folder.is_dir():
                self._client.log_artifacts(target.id, str(folder), name)
            else:
                self._client.log_artifact(target.id, str(folder), name or None)

        self._ask(request)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        def request() -> None:
            for name, value in tags.items():
                self._client.set_tag(self.parent.id, name, value)

        self._ask(request)

    def finish(self, status: str = "FINISHED") -> None:
        """End the parent run, and wait for what is still to be sent as long as MLflow takes it."""
        self._ask(lambda: self._client.set_terminated(self.parent.id, status=status))
        self._is_ended = True
        self._wake.set()
        self._thread.join(CANCEL_SECONDS if status == "KILLED" else CLOSE_SECONDS)
        while self._thread.is_alive() and status != "KILLED" and not self._is_away:
            self._thread.join(1)
        if self._thread.is_alive():
            late = "MLflow at %s did not take everything in time; the next run sends the rest"
            log.warning(late, hide_credentials(self.uri))

    @property
    def is_sent(self) -> bool:
        """Whether MLflow has been sent all of a run that has ended."""
        return not self._thread.is_alive()

    def wait_until_sent(self, seconds: float) -> bool:
        """Wait for all that was asked for so far; return whether it was sent in time."""
        sent = threading.Event()
        self._ask(sent.set)
        return sent.wait(seconds)

    def build_address(self) -> str:
        """Return the parent run's page; empty until it exists, and where no server shows it."""
        return build_run_address(self.uri, self._experiment_id, self.parent.id)

    def _ask(self, request: Callable[[], None]) -> None:
        self._waiting.append(request)
        self._wake.set()

    def _send(self) -> None:
        """Send what is new every few seconds; at the end, until MLflow has all of it."""
        while True:
            is_ended = self._is_ended
            if not self._flush():
                time.sleep(RETRY_SECONDS)
            elif is_ended:
                return
            else:
                self._wake.wait(POLL_SECONDS)
                self._wake.clear()

    def _flush(self) -> bool:
        """Send what was asked for, in order, and new lines; return whether MLflow took all."""

        def report(error: Exception, level: int) -> None:
            log.log(level, "MLflow at %s: %s", *map(hide_credentials, (self.uri, str(error))))

        try:
            self._connect()
            while self._waiting:
                try:
                    self._waiting[0]()
                except Exception as error:
                    is_final = getattr(error, "error_code", "") in FINAL_CODES
                    if not (is_final or isinstance(error, FINAL_ERRORS)):
                        raise
                    report(error, logging.WARNING)
                self._waiting.popleft()
            for run in self._followed:
                self._send_lines(run)
        except Exception as error:
            report(error, logging.DEBUG if self._is_away else logging.WARNING)
            self._is_away = True
        else:
            self._is_away = False
        return not self._is_away

    def _connect(self) -> None:
        if self._client:
            return
        client = create_client(self.uri)
        if experiment := client.get_experiment_by_name(EXPERIMENT):
            self._experiment_id = experiment.experiment_id
            if experiment.lifecycle_stage == "deleted":  # it takes no run
                client.restore_experiment(experiment.experiment_id)
                log.warning("MLflow: the experiment %s was deleted; it is restored", EXPERIMENT)
        else:
            is_server = self.uri.startswith("http")
            artifacts = None if is_server else self._artifacts or locate_artifacts(self.uri)
            self._experiment_id = client.create_experiment(EXPERIMENT, artifacts, KIND)
        self._client = client

    def _search_runs(self, tags: Mapping[str, str], name: str) -> list[Any]:
        """Return the info of the runs with these tags and this name."""
        query = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in tags.items())
        found = self._client.search_runs([self._experiment_id], query)
        return [run.info for run in found if run.info.run_name == name]

    def _create_run(
        self, run: TrackedRun, parameters: Mapping[str, Any], tags: Mapping[str, str]
    ) -> None:
        """Create a run in MLflow, or continue the one that it has of the same flow run or stage."""
        from mlflow.entities import Param

        nested = {"mlflow.parentRunId": self.parent.id} if run is not self.parent else {}
        key = FINGERPRINT if nested else FLOW_RUN
        if not run.id and tags.get(key):
            known = self._search_runs({key: tags[key], **nested}, run.name)
            run.id = known[0].run_id if known else ""
        if run.id:
            self._client.update_run(run.id, status="RUNNING")
            return
        all_tags = {**tags, **nested, "mlflow.user": os.environ.get("USER", "")}
        created = self._client.create_run(self._experiment_id, tags=all_tags, run_name=run.name)
        run.id = created.info.run_id
        values = [Param(name, str(v)[:PARAMETER_CHARACTERS]) for name, v in parameters.items()]
        for start in range(0, len(values), BATCH_PARAMETERS):
            self._client.log_batch(run.id, params=values[start : start + BATCH_PARAMETERS])

    def _send_lines(self, run: TrackedRun) -> None:
        """Send the lines of metrics.jsonl that were added."""
        assert run.folder is not None
        lines = read_metrics(run.folder)[run.sent :]
        self._send_metrics(run, lines)
        run.sent += len(lines)

    def _send_metrics(self, run: TrackedRun, lines: Sequence[Mapping[str, Any]]) -> None:
        """Send every number of the lines; `step` and `time` are each line's place."""
        from mlflow.entities import Metric

        metrics = []
        for line in lines:
            milliseconds, step = int(line.get("time", time.time()) * 1000), int(line["step"])
            for name, value in line.items():
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if is_number and name not in ("step", "time"):
                    shown = re.sub(OUTSIDE_NAMES, "-", name.replace("@", "_at_"))
                    metrics.append(Metric(shown, float(value), milliseconds, step))
        for start in range(0, len(metrics), BATCH_METRICS):
            self._client.log_batch(run.id, metrics=metrics[start : start + BATCH_METRICS])
