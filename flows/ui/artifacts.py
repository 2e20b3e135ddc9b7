"""What the Prefect UI shows of a run: artifacts and log lines.

A listener hears what happens to a stage. None can stop a run: what it cannot show it drops.
"""

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from prefect.artifacts import (
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

UPDATE_SECONDS = 2.0
"""Time between two updates of a progress artifact: each is a request to the server."""


class PrefectRun:
    """Artifacts and log lines of the task run that this thread is in.

    Progress is posted by a thread, one post at a time: while the server is away its client waits
    for minutes, and what is reported meanwhile is lost.
    """

    def __init__(self) -> None:
        self._artifacts: dict[str, tuple[Any, float]] = {}
        self._poster = threading.Thread()

    def on_line(self, text: str) -> None:
        find_run_logger().info("%s", text)

    def on_start(self, stage: Stage, log: str) -> None:
        find_run_logger().info("%s: started; log %s", stage.label, log)
        key, about = f"{stage.label}-progress", f"{stage.label}: started"
        if artifact := publish(create_progress_artifact, key, progress=0.0, description=about):
            self._artifacts[stage.fingerprint] = (artifact, time.monotonic())

    def on_progress(self, stage: Stage, progress: Mapping[str, Any]) -> None:
        artifact, updated_at = self._artifacts.get(stage.fingerprint, (None, 0.0))
        is_early = time.monotonic() - updated_at < UPDATE_SECONDS
        if artifact is None or is_early or self._poster.is_alive():
            return
        percent = min(100 * progress["done"] / (progress["total"] or float("inf")), 100.0)
        text = f"{stage.label}: {format_report(progress)}"
        post = partial(update_progress_artifact, artifact, percent, text)
        context = contextvars.copy_context()
        self._poster = threading.Thread(target=context.run, args=[attempt, post], daemon=True)
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
            attempt(partial(update_progress_artifact, artifact, 100.0, f"{stage.label}: done"))

    def on_failure(self, stage: Stage, cause: str) -> None:
        find_run_logger().error("%s: %s", stage.label, cause)


class Answers:
    """The answers of a run so far: a table that grows by a row for each arm that is evaluated, in
    the terminal and in a Prefect artifact.
    """

    def __init__(self, runner: StageRunner) -> None:
        self._runner, self._lock = runner, threading.Lock()
        self._rows = list[dict[str, str]]()
        self._best: dict[str, tuple[float, str]] = {}
        """Task → rank of its best answer on test, and the arm with its value."""

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        model = stage.inputs.get("model")
        if stage.name != "evaluation" or not model or "labels" in model.labels:
            return
        arm, task, seed = (model.labels[name] for name in ("arm", "task", "seed"))
        metric, metrics = manifest["result"]["main_metric"], manifest["result"]["metrics"]
        name = arm if seed == "0" else f"{arm}, seed {seed}"
        shown, value = format_with_interval(metric, metrics[metric]), metrics[metric]["value"]
        rank = value if METRICS[metric].better == "higher" else -value
        answer = rank, f"{name}, {format_number(metric, value)}"
        with self._lock:
            self._rows.append({"task": task, "model": name, get_title(metric): shown})
            about = "The models that are evaluated so far, on test, with 95% intervals"
            publish(create_table_artifact, "answers", table=self._rows, description=about)
            self._best[task] = max(self._best.get(task, answer), answer)
            best = "; ".join(f"{text} ({task})" for task, (_, text) in self._best.items())
            line = f"→ {name}, {task}: {shown} {get_title(metric)}; best so far: {best}"
            self._runner.notify("on_line", line)


def publish(create: Callable[..., Any], name: str, **content: Any) -> Any:
    """Return what a function of prefect.artifacts creates; its key has lower-case letters, digits
    and dashes alone.
    """
    text = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())
    key = "-".join(part for part in text.split("-") if part)
    return attempt(partial(create, key=key, **content))


def attempt(show: Callable[[], Any]) -> Any:
    """Return what a request to Prefect gives; what it raises is logged, and None returned: a server
    that is away or full must not fail a run.
    """
    try:
        return show()
    except Exception as error:
        logging.getLogger("amazon_electra").warning("could not be shown in Prefect: %s", error)
        return None
