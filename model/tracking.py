"""MLflow mirrors what the jobs write; it is never in the way of what they do.

Jobs append their metrics to metrics.jsonl. One thread here reads those files and sends them on, creates runs and logs
artifacts, in order; what fails is tried again. An MLflow server that is away stops nothing: what could not be sent by
the end of a run is sent by the next one (`tracking.json` beside the metrics says how far it got). Only this file and
model/registry.py import mlflow.
"""

import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # tried again here, without blocking anyone
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

EXPERIMENT = "domain-adaptation"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # what the UI shows first: runs and curves
BROWSER_ADDRESS = "AMAZON_ELECTRA_MLFLOW_UI"  # where browsers reach MLflow, if not where this process does
READ_SECONDS = 1.0  # between two looks at the files
RETRY_SECONDS = 5.0  # between two attempts to reach MLflow
CLOSE_SECONDS = 20.0  # at most, at the end of a run, for what is still to be sent
CANCEL_SECONDS = 5.0  # at the end of one that was cancelled: Prefect kills it 30 s after telling it
NEVER_PASSES = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "BAD_REQUEST"}
MISTAKES = (AssertionError, AttributeError, KeyError, TypeError, ValueError, FileNotFoundError)  # ours; said, then left
BATCH_METRICS = 1_000  # MLflow's limit for one request
MIRRORED = ("metrics.jsonl", "system.jsonl")  # of a run's folder, a line of JSON for each step or sample
PARAMETER_CHARACTERS = 6_000  # MLflow's limit for one value

log = logging.getLogger("amazon_electra.tracking")


@dataclass
class Run:
    """A run in MLflow that may not exist yet: its id is known once the thread got through to create it."""

    name: str
    folder: Path | None = None
    id: str = ""
    sent: dict[str, int] = field(default_factory=dict)  # lines of each of MIRRORED
    over: bool = False
    logged: set[tuple[Path, str]] = field(default_factory=set)  # folders and the artifacts they are

    def remember(self) -> None:
        """So that a later process continues this run instead of beginning another."""
        if self.folder and self.folder.is_dir():
            state = {"run_id": self.id, "sent": self.sent, "over": self.over}
            temporary = self.folder / ".tracking.json"
            temporary.write_text(json.dumps(state))
            os.replace(temporary, self.folder / "tracking.json")

    def recall(self) -> None:
        try:
            state = json.loads((self.folder / "tracking.json").read_text()) if self.folder else {}
        except (FileNotFoundError, ValueError):
            state = {}
        self.id, self.sent = state.get("run_id", ""), state.get("sent", {})
        self.over = state.get("over", False)


@dataclass
class Tracking:
    """One graph run: a parent run, and a nested one for every folder that is followed."""

    uri: str
    artifacts: str = ""  # where a new experiment keeps its artifacts; empty: where the server says
    experiment: str = EXPERIMENT
    parent: Run = field(default_factory=lambda: Run(""))
    _work: "queue.Queue[Callable[[], None]]" = field(default_factory=queue.Queue)
    _followed: list[Run] = field(default_factory=list)
    _closing: threading.Event = field(default_factory=threading.Event)
    _client: Any = None
    _experiment_id: str = ""
    _failures: int = 0

    def start(
        self,
        name: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        dataset: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Begins the parent run, or continues the one that `folder` remembers.

        `dataset`: name, digest and source of the dump.
        """
        self.parent = Run(name, folder)
        self.parent.recall()
        self._thread = threading.Thread(target=self._serve, name="mlflow", daemon=True)
        self._thread.start()
        self._work.put(lambda: self._create(self.parent, parameters, tags, dataset))

    @contextmanager
    def following(
        self, name: str, folder: Path, parameters: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Iterator[Run]:
        """A nested run that mirrors folder/metrics.jsonl while the block lasts; continues one that was interrupted."""
        run = Run(name, folder)
        run.recall()
        run.over = False
        self._work.put(lambda: self._create(run, parameters, tags))
        self._work.put(lambda: self._followed.append(run))
        try:
            yield run
        except BaseException:
            self._work.put(lambda: self._finish(run, "FAILED"))
            raise
        self._work.put(lambda: self._finish(run, "FINISHED"))

    def mirror(
        self,
        name: str,
        folder: Path,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
    ) -> None:
        """A folder made before, be it under another parent, as a nested run of this one, unless it has it already.

        `tags` have its `fingerprint`; `metrics` are its final numbers. Nothing is written into the folder.
        """
        self._work.put(lambda: self._mirror_once(Run(name), folder, parameters, tags, metrics))

    def behind(self, folder: Path) -> bool:
        """Whether an earlier run could not send all of a folder that is complete by now."""
        run = Run("", folder)
        run.recall()
        return not run.over and (folder / "metrics.jsonl").exists()

    def log_metrics(self, metrics: Mapping[str, float], run: Run | None = None) -> None:
        """Final numbers, at step 0."""
        self._work.put(lambda: self._send(run or self.parent, [{"step": 0, "time": time.time(), **metrics}]))

    def log_folder(self, folder: Path, name: str, run: Run | None = None) -> None:
        """A complete folder or file as artifact `name` of a run: sent once, however often it is asked for."""
        put, target = self._log_folder if folder.is_dir() else self._log_file, run or self.parent
        if (folder, name) not in target.logged:
            target.logged.add((folder, name))
            self._work.put(lambda: put(target.id, folder, name))

    def remember_taken(self, folder: Path) -> None:
        """Once all that was asked so far has arrived, `has_taken` says so of this folder, to later processes too."""
        self._work.put(lambda: Run("", folder, self.parent.id, over=True).remember())

    def has_taken(self, folder: Path) -> bool:
        run = Run("", folder)
        run.recall()
        return run.over

    def tag(self, tags: Mapping[str, str]) -> None:
        self._work.put(lambda: self._tag(tags))

    def finish(self, status: str = "FINISHED") -> None:
        """Ends the parent run; waits a while for what is still to be sent."""
        self._work.put(lambda: self._client.set_terminated(self.parent.id, status=status))
        self._closing.set()
        self._thread.join(CANCEL_SECONDS if status == "KILLED" else CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("MLflow at %s did not take everything in time; the next run sends the rest", public(self.uri))

    def address(self) -> str:
        """Where a browser finds the parent run; empty until it exists, and where no server shows it."""
        page = public(os.environ.get(BROWSER_ADDRESS) or (self.uri if self.uri.startswith("http") else ""))
        known = page and self._experiment_id and self.parent.id
        return f"{page}/#/experiments/{self._experiment_id}/runs/{self.parent.id}" if known else ""

    def settle(self, seconds: float) -> bool:
        """Waits until all that was asked so far is done; whether it was in time."""
        reached = threading.Event()
        self._work.put(reached.set)
        return reached.wait(seconds)

    def _serve(self) -> None:
        """The thread: reads what is followed, works off what was asked, one after the other, until all is done."""
        while True:
            try:
                work = self._work.get(timeout=0.05 if self._closing.is_set() else READ_SECONDS)
            except queue.Empty:
                if self._closing.is_set():
                    return
                if not self._attempt(self._mirror_all):
                    time.sleep(RETRY_SECONDS)
                continue
            while not self._attempt(work):
                time.sleep(RETRY_SECONDS)

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Whether it passed; a mistake of ours is not tried for ever."""
        try:
            self._connect()
            work()
        except Exception as error:
            self._failures += 1
            level = logging.WARNING if self._failures == 1 else logging.DEBUG
            log.log(level, "MLflow at %s: %s", public(self.uri), public(str(error)))
            return getattr(error, "error_code", "") in NEVER_PASSES or isinstance(error, MISTAKES)
        self._failures = 0
        return True

    def _connect(self) -> None:
        if self._client:
            return
        client = client_of(self.uri)
        found = client.get_experiment_by_name(self.experiment)
        artifacts = self.artifacts or beside(self.uri)
        made = found.experiment_id if found else client.create_experiment(self.experiment, artifacts, KIND)
        self._client, self._experiment_id = client, made

    def _create(
        self,
        run: Run,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        dataset: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Dataset, DatasetInput, Param, RunTag

        nested = {"mlflow.parentRunId": self.parent.id} if run is not self.parent else {}
        if run.id and self._continues(run):
            return
        all_tags = {**tags, **nested, "mlflow.user": os.environ.get("USER", "")}
        run.id = self._client.create_run(self._experiment_id, tags=all_tags, run_name=run.name).info.run_id
        run.sent = {}
        values = [Param(name, str(value)[:PARAMETER_CHARACTERS]) for name, value in parameters.items()]
        for start in range(0, len(values), 100):
            self._client.log_batch(run.id, params=values[start : start + 100])
        if tags:
            self._client.log_batch(run.id, tags=[RunTag(name, value) for name, value in tags.items()])
        if dataset:
            source = Dataset(dataset["name"], dataset["digest"], "local", json.dumps({"uri": dataset["source"]}))
            self._client.log_inputs(run.id, [DatasetInput(source, [])])
        run.remember()

    def _continues(self, run: Run) -> bool:
        """Takes up the run of an earlier process, where MLflow still knows it, under this parent."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.update_run(run.id, status="RUNNING")
        except MlflowException as unknown:
            if unknown.error_code not in NEVER_PASSES:
                raise
            run.id = ""
            return False
        if run is not self.parent:
            self._client.set_tag(run.id, "mlflow.parentRunId", self.parent.id)
        return True

    def _tag(self, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self._client.set_tag(self.parent.id, name, value)

    def _mirror_all(self) -> None:
        for run in self._followed:
            self._mirror(run)

    def _mirror(self, run: Run) -> None:
        """Sends the lines that were added; those that come again after a resume has cut the file were sent already."""
        assert run.folder is not None
        for name in MIRRORED:
            fresh = _lines(run.folder / name, run.sent.get(name, 0))
            if fresh:
                self._send(run, fresh)
                run.sent[name] = run.sent.get(name, 0) + len(fresh)
                run.remember()

    def _mirror_once(
        self,
        run: Run,
        folder: Path,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
    ) -> None:
        """MLflow itself knows what the parent has; a run that was begun and not finished is continued."""
        of_parent = f"tags.`mlflow.parentRunId` = '{self.parent.id}' and tags.fingerprint = '{tags['fingerprint']}'"
        found = [r.info for r in self._client.search_runs([self._experiment_id], of_parent)]
        same = [info for info in found if info.run_name == run.name]
        if any(info.status == "FINISHED" for info in same):
            return
        run.id = same[0].run_id if same else ""
        self._create(run, parameters, tags)
        for name in MIRRORED:
            self._send(run, _lines(folder / name))
        self._send(run, [{"step": 0, "time": time.time(), **metrics}])
        self._client.set_terminated(run.id, status="FINISHED")

    def _send(self, run: Run, lines: list[dict[str, Any]]) -> None:
        from mlflow.entities import Metric

        if not run.id:
            run.recall()
        metrics = [
            Metric(
                name.replace("@", "_at_"), float(value), int(line.get("time", time.time()) * 1000), int(line["step"])
            )
            for line in lines
            for name, value in line.items()
            if name not in ("step", "time") and isinstance(value, int | float) and not isinstance(value, bool)
        ]
        for start in range(0, len(metrics), BATCH_METRICS):
            self._client.log_batch(run.id, metrics=metrics[start : start + BATCH_METRICS])

    def _finish(self, run: Run, status: str) -> None:
        self._mirror(run)
        self._client.set_terminated(run.id, status=status)
        run.over = status == "FINISHED"
        run.remember()
        if run in self._followed:
            self._followed.remove(run)

    def _log_folder(self, run_id: str, folder: Path, name: str) -> None:
        self._client.log_artifacts(run_id, str(folder), name)

    def _log_file(self, run_id: str, file: Path, name: str) -> None:
        self._client.log_artifact(run_id, str(file), name or None)


def _lines(file: Path, after: int = 0) -> list[dict[str, Any]]:
    """The complete lines of JSON behind the first `after`; none where there is no file."""
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[after:]]


def client_of(uri: str) -> Any:
    """Of tracking and registry; what it has to say of tables and lost connections is told once, by whoever asked."""
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def public(text: str) -> str:
    """Without the names and passwords that addresses in it may hold: for logs and links."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def beside(uri: str) -> str | None:
    """Where artifacts go that a database has no place for: beside an SQLite file, never where it was started."""
    file = uri.removeprefix("sqlite:///")
    return (Path(file).absolute().parent / "artifacts").as_uri() if file != uri else None
