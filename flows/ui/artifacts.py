"""What the Prefect UI shows of a run: artifacts and log lines.

A listener hears what happens to a stage. None can stop a run: what it cannot show it drops.
"""

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from amazon_electra.beam_jobs.core.progress import format_report
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.flatten import summarize_manifest
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest
from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.report.formats import format_number, format_with_interval, get_title
from amazon_electra.model.tracking.mlflow_run import Tracking

UPDATE_SECONDS = 2.0
"""Time between two updates of a progress artifact: each is a request to the server."""


class PrefectRun:
    """Artifacts and log lines of the task run that this thread is in.

    Progress is posted by a thread, one post at a time: while the server is away its client waits
    for minutes, and what is reported meanwhile is lost.
    """

    def __init__(self, tracking: Tracking | None = None) -> None:
        """`tracking` is linked to as soon as it has an address."""
        self._artifacts: dict[str, tuple[Any, float]] = {}
        self._poster, self._tracking = threading.Thread(), tracking

    def on_plan(self, line: str, page: str) -> None:
        find_run_logger().info("plan: %s", line)
        publish(create_markdown_artifact, page, key="plan", description="What is to do")

    def on_start(self, stage: Stage, log: str) -> None:
        find_run_logger().info("%s: started; log %s", stage.label, log)
        key, about = make_artifact_key(f"{stage.label}-progress"), f"{stage.label}: started"
        if artifact := publish(create_progress_artifact, 0.0, key=key, description=about):
            self._artifacts[stage.fingerprint] = (artifact, time.monotonic())

    def on_progress(self, stage: Stage, progress: Mapping[str, Any]) -> None:
        artifact, updated_at = self._artifacts.get(stage.fingerprint, (None, 0.0))
        is_early = time.monotonic() - updated_at < UPDATE_SECONDS
        if artifact is None or is_early or self._poster.is_alive():
            return
        percent = min(100 * progress["done"] / (progress["total"] or float("inf")), 100.0)
        text = f"{stage.label}: {format_report(progress)}"
        post = partial(publish, update_progress_artifact, artifact, percent, text)
        context = contextvars.copy_context()
        self._poster = threading.Thread(target=context.run, args=[post], daemon=True)
        self._poster.start()
        self._artifacts[stage.fingerprint] = (artifact, time.monotonic())

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        logger, how = find_run_logger(), "found complete" if found else "done"
        logger.info("%s: %s; %s", stage.label, how, summarize_manifest(manifest))
        for warning in manifest["result"].get("warnings", []):
            logger.warning("%s: %s", stage.label, warning)
        artifact, _ = self._artifacts.pop(stage.fingerprint, (None, 0.0))
        if artifact:
            if self._poster.is_alive():
                self._poster.join(UPDATE_SECONDS)
            text = f"{stage.label}: done"
            publish(update_progress_artifact, artifact, progress=100.0, description=text)
        if self._tracking and (address := self._tracking.build_address()):
            self._tracking = None
            about = "The run in MLflow: curves, system metrics, artifacts"
            publish_link(address, "mlflow-run", about)

    def on_failure(self, stage: Stage, cause: str) -> None:
        find_run_logger().error("%s: %s", stage.label, cause)

    def on_wait(self, stage: Stage) -> None:
        find_run_logger().info("%s: another run is making it; waiting", stage.label)

    def on_link(self, stage: Stage, address: str) -> None:
        find_run_logger().info("%s: %s", stage.label, address)
        publish_link(address, f"{stage.label}-job", f"{stage.label}: the job on its engine")


class Answers:
    """The answers of a run so far: a table that grows by a row for each arm that is evaluated, in
    the terminal, in a Prefect artifact and in MLflow.
    """

    def __init__(self, runner: StageRunner) -> None:
        self._runner, self._lock = runner, threading.Lock()
        self._rows: dict[tuple[str, ...], dict[str, str]] = {}
        self._best: dict[str, tuple[float, str]] = {}
        """Task → rank of its best answer on test, and the arm with its value."""

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        model = stage.inputs.get("model")
        if stage.name != "evaluation" or not model or "labels" in model.labels:
            return
        arm, task, seed = (model.labels[name] for name in ("arm", "task", "seed"))
        metric, metrics = manifest["result"]["main_metric"], manifest["result"]["metrics"]
        name = arm if seed == "0" else f"{arm}, seed {seed}"
        fitted = self._runner.store.manifest(model) or {}
        seconds = fitted.get("seconds", 0.0) + manifest.get("seconds", 0.0)
        row = {
            "task": task,
            "model": name,
            get_title(metric): format_with_interval(metric, metrics[metric]),
            "seconds": f"{seconds:,.1f}",
        }
        with self._lock:
            if self._rows.get((task, arm, seed)) == row:
                return
            self._rows[task, arm, seed] = row
            values = {f"answers.{arm}.{task}.{n}": v["value"] for n, v in metrics.items()}
            self._runner.tracking.log_metrics({**values, f"answers.{arm}.{task}.seconds": seconds})
            about = "The models that are evaluated so far, on test, with 95% intervals"
            publish_table("answers", list(self._rows.values()), about)
            value = metrics[metric]["value"]
            rank = value if METRICS[metric].better == "higher" else -value
            named = f"{name}, {format_number(metric, value)}"
            self._best[task] = max(self._best.get(task, (rank, named)), (rank, named))
            best = "; ".join(f"{text} ({task})" for task, (_, text) in self._best.items())
            self._runner.notify("on_answer", row, f"best so far: {best}")


def publish_link(url: str, name: str, description: str) -> None:
    """Show a link on the run's page."""
    named = {"key": make_artifact_key(name), "description": description}
    publish(create_link_artifact, url, name, **named)


def publish_table(name: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Show a table on the run's page."""
    key = make_artifact_key(name)
    publish(create_table_artifact, list(map(dict, rows)), key=key, description=description)


def publish(show: Callable[..., Any], *what: Any, **named: Any) -> Any:
    """Return what a function of prefect.artifacts gives; what it raises is logged, and None
    returned: a server that is away or full must not fail a run.
    """
    try:
        return show(*what, **named)
    except Exception as error:
        logging.getLogger("amazon_electra").warning("could not be shown in Prefect: %s", error)
        return None


def make_artifact_key(name: str) -> str:
    """Return lower-case letters, digits and dashes: what Prefect accepts as an artifact's key."""
    text = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())
    return "-".join(part for part in text.split("-") if part)
