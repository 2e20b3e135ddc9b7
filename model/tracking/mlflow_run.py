"""Mirrors in MLflow what the jobs write; it is never in the way of what they do.

Jobs append their metrics to metrics.jsonl. The sender's thread reads those files and sends them on,
creates runs and logs artifacts, in order. An MLflow server that is away stops nothing: what could
not be sent by the end of a run is sent by the next one (`tracking.json` beside the metrics says how
far it got).
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from beam_jobs.job.files import link_path
from model.tracking.mlflow_client import (
    build_run_address,
    create_client,
    hide_credentials,
    locate_artifacts,
)
from model.tracking.run_state import TrackedRun, read_lines
from model.tracking.sender import FINAL_ERROR_CODES, Sender

EXPERIMENT = "domain-adaptation"
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Makes the UI open on runs and curves."""
MIRRORED = ("metrics.jsonl", "system.jsonl")
"""Files of a run's folder with a line of JSON for each step or sample."""
CLOSE_SECONDS = 20.0
"""At most, at the end of a run, for what is still to be sent."""
CANCEL_SECONDS = 5.0
"""The same for a run that was cancelled: Prefect kills it 30 s after telling it."""
BATCH_METRICS = 1_000
"""MLflow's limit for one request."""
BATCH_PARAMETERS = 100
PARAMETER_CHARACTERS = 6_000
"""MLflow's limit for one value."""

log = logging.getLogger("amazon_electra.tracking")


class Tracking:
    """One graph run: a parent run, and a nested one for every folder that is followed."""

    def __init__(self, uri: str, artifacts: str = "", experiment: str = EXPERIMENT) -> None:
        """Prepare the run; nothing is sent before `start`.

        `artifacts` is where a new experiment keeps its artifacts; empty: where the server says.
        """
        self.uri, self._artifacts, self._experiment = uri, artifacts, experiment
        self.parent = TrackedRun("")
        self._followed: list[TrackedRun] = []
        self._sender = Sender(uri, self._connect, self._mirror_followed)
        self._client: Any = None
        self._experiment_id = ""

    def start(
        self,
        name: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        dataset: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Begin the parent run, or continue the one whose state is in `folder`.

        `dataset` has the dump's name, digest and source.
        """
        self.parent = TrackedRun(name, folder).load_state()
        self._sender.start()
        self._sender.submit(lambda: self._create_run(self.parent, parameters, tags, dataset))

    def join(self, parent: str) -> None:
        """Take part in a run that another process has begun and will end; `parent` is its id."""
        self.parent = TrackedRun("", id=parent)
        self._sender.start()

    @contextmanager
    def follow_folder(
        self, name: str, folder: Path, parameters: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Iterator[TrackedRun]:
        """Mirror a folder's metrics in a nested run while the block lasts.

        The nested run of an interrupted process is continued.
        """
        run = TrackedRun(name, folder).load_state()
        run.over = False
        self._sender.submit(lambda: self._create_run(run, parameters, tags))
        self._sender.submit(lambda: self._followed.append(run))
        try:
            yield run
        except BaseException:
            self._sender.submit(lambda: self._finish_run(run, "FAILED"))
            raise
        self._sender.submit(lambda: self._finish_run(run, "FINISHED"))

    def mirror_folder(
        self,
        name: str,
        folder: Path,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
    ) -> None:
        """Mirror a finished folder in a nested run, unless this run has it already.

        `tags` have its `fingerprint`; `metrics` are its final numbers. Nothing is written into the
        folder, which may be another run's.
        """
        run = TrackedRun(name)
        self._sender.submit(lambda: self._mirror_once(run, folder, parameters, tags, metrics))

    def is_behind(self, folder: Path) -> bool:
        """Return whether an earlier run could not send all of a folder's metrics."""
        return not self.is_logged(folder) and (folder / "metrics.jsonl").exists()

    def log_metrics(self, metrics: Mapping[str, float], run: TrackedRun | None = None) -> None:
        """Log final numbers, at step 0."""
        line = {"step": 0, "time": time.time(), **metrics}
        self._sender.submit(lambda: self._send_metrics(run or self.parent, [line]))

    def log_folder(self, folder: Path, name: str, run: TrackedRun | None = None) -> None:
        """Log a complete folder or file as artifact `name` of a run, once however often called.

        In a folder of this machine the artifact is the same files under a second name.
        """
        target = run or self.parent
        if (folder, name) not in target.logged:
            target.logged.add((folder, name))
            self._sender.submit(lambda: self._send_artifact(target, folder, name))

    def mark_logged(self, folder: Path) -> None:
        """Make `is_logged` true of a folder, in later processes too, once all has arrived."""
        self._sender.submit(lambda: TrackedRun("", folder, self.parent.id, over=True).save_state())

    def is_logged(self, folder: Path) -> bool:
        return TrackedRun("", folder).load_state().over

    def set_tags(self, tags: Mapping[str, str]) -> None:
        def request() -> None:
            for name, value in tags.items():
                self._client.set_tag(self.parent.id, name, value)

        self._sender.submit(request)

    def finish(self, status: str = "FINISHED") -> None:
        """End the parent run, and wait a while for what is still to be sent."""
        self._sender.submit(lambda: self._client.set_terminated(self.parent.id, status=status))
        self.close(status)

    def close(self, status: str = "FINISHED") -> None:
        """Wait a while for what is still to be sent; the parent run stays as it is."""
        if not self._sender.close(CANCEL_SECONDS if status == "KILLED" else CLOSE_SECONDS):
            log.warning(
                "MLflow at %s did not take everything in time; the next run sends the rest",
                hide_credentials(self.uri),
            )

    def build_address(self) -> str:
        """Return the parent run's page; empty until it exists, and where no server shows it."""
        return build_run_address(self.uri, self._experiment_id, self.parent.id)

    def wait_until_sent(self, seconds: float) -> bool:
        """Wait for all that was submitted so far; return whether it was sent in time."""
        return self._sender.wait_until_sent(seconds)

    def _connect(self) -> None:
        if self._client:
            return
        client = create_client(self.uri)
        experiment = client.get_experiment_by_name(self._experiment)
        artifacts = self._artifacts or locate_artifacts(self.uri)
        self._experiment_id = (
            experiment.experiment_id
            if experiment
            else client.create_experiment(self._experiment, artifacts, KIND)
        )
        self._client = client

    def _create_run(
        self,
        run: TrackedRun,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        dataset: Mapping[str, str] | None = None,
    ) -> None:
        """Create a run in MLflow, or continue the one that it knows by its id."""
        from mlflow.entities import Dataset, DatasetInput, Param

        if run.id and self._continue_run(run):
            return
        nested = {"mlflow.parentRunId": self.parent.id} if run is not self.parent else {}
        all_tags = {**tags, **nested, "mlflow.user": os.environ.get("USER", "")}
        created = self._client.create_run(self._experiment_id, tags=all_tags, run_name=run.name)
        run.id, run.sent = created.info.run_id, {}
        values = [Param(name, str(v)[:PARAMETER_CHARACTERS]) for name, v in parameters.items()]
        for start in range(0, len(values), BATCH_PARAMETERS):
            self._client.log_batch(run.id, params=values[start : start + BATCH_PARAMETERS])
        if dataset:
            source = json.dumps({"uri": dataset["source"]})
            entity = Dataset(dataset["name"], dataset["digest"], "local", source)
            self._client.log_inputs(run.id, [DatasetInput(entity, [])])
        run.save_state()

    def _continue_run(self, run: TrackedRun) -> bool:
        """Continue the run of an earlier process under this parent, where MLflow still has it."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.update_run(run.id, status="RUNNING")
        except MlflowException as unknown:
            if unknown.error_code not in FINAL_ERROR_CODES:
                raise
            run.id = ""
            return False
        if run is not self.parent:
            self._client.set_tag(run.id, "mlflow.parentRunId", self.parent.id)
        return True

    def _mirror_followed(self) -> None:
        for run in self._followed:
            self._mirror_run(run)

    def _mirror_run(self, run: TrackedRun) -> None:
        """Send the lines that were added.

        Lines that come again, after a resumed job cut its file, were sent already.
        """
        assert run.folder is not None
        for name in MIRRORED:
            lines = read_lines(run.folder / name, run.sent.get(name, 0))
            if lines:
                self._send_metrics(run, lines)
                run.sent[name] = run.sent.get(name, 0) + len(lines)
                run.save_state()

    def _mirror_once(
        self,
        run: TrackedRun,
        folder: Path,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
    ) -> None:
        """Mirror a folder, unless MLflow has it finished; one that was begun is continued."""
        query = (
            f"tags.`mlflow.parentRunId` = '{self.parent.id}' "
            f"and tags.fingerprint = '{tags['fingerprint']}'"
        )
        known = [r.info for r in self._client.search_runs([self._experiment_id], query)]
        same = [info for info in known if info.run_name == run.name]
        if any(info.status == "FINISHED" for info in same):
            return
        run.id = same[0].run_id if same else ""
        self._create_run(run, parameters, tags)
        for name in MIRRORED:
            self._send_metrics(run, read_lines(folder / name))
        self._send_metrics(run, [{"step": 0, "time": time.time(), **metrics}])
        self._client.set_terminated(run.id, status="FINISHED")

    def _send_metrics(self, run: TrackedRun, lines: list[dict[str, Any]]) -> None:
        """Send every number of the lines; `step` and `time` are each line's place."""
        from mlflow.entities import Metric

        if not run.id:
            run.load_state()
        metrics = [
            Metric(
                name.replace("@", "_at_"),
                float(value),
                int(line.get("time", time.time()) * 1000),
                int(line["step"]),
            )
            for line in lines
            for name, value in line.items()
            if name not in ("step", "time")
            and isinstance(value, int | float)
            and not isinstance(value, bool)
        ]
        for start in range(0, len(metrics), BATCH_METRICS):
            self._client.log_batch(run.id, metrics=metrics[start : start + BATCH_METRICS])

    def _send_artifact(self, run: TrackedRun, folder: Path, name: str) -> None:
        from mlflow.utils.file_utils import local_file_uri_to_path
        from mlflow.utils.uri import is_local_uri

        place = self._client.get_run(run.id).info.artifact_uri
        if is_local_uri(place):
            link_path(folder, Path(local_file_uri_to_path(place), name))
        elif folder.is_dir():
            self._client.log_artifacts(run.id, str(folder), name)
        else:
            self._client.log_artifact(run.id, str(folder), name or None)

    def _finish_run(self, run: TrackedRun, status: str) -> None:
        self._mirror_run(run)
        self._client.set_terminated(run.id, status=status)
        run.over = status == "FINISHED"
        run.save_state()
        if run in self._followed:
            self._followed.remove(run)
