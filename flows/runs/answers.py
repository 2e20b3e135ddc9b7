"""The answers of a run so far: a table that grows by a line for each arm that is evaluated, in the
terminal, in a Prefect artifact and in MLflow.
"""

import threading
from collections.abc import Mapping
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest
from amazon_electra.flows.ui import artifacts
from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.evaluation.predictions import read_predictions
from amazon_electra.model.evaluation.significance import compare_arms
from amazon_electra.model.report.formats import (
    format_change,
    format_number,
    format_with_interval,
    get_title,
)


class Answers:
    """Hears of evaluations; each becomes a row, compared with the first row of its task."""

    def __init__(self, runner: StageRunner) -> None:
        self._runner, self._lock = runner, threading.Lock()
        self._seconds: dict[str, float] = {}
        self._first: dict[str, tuple[str, Stage]] = {}
        self._rows: dict[tuple[str, ...], dict[str, str]] = {}
        self._best: dict[str, tuple[float, str]] = {}
        """Task → rank of its best answer on test, and the arm with its value."""

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        self._seconds[stage.fingerprint] = manifest.get("seconds", 0.0)
        model = stage.inputs.get("model")
        if stage.name != "evaluation" or not model or "labels" in model.labels:
            return
        with self._lock:
            self._add_row(stage, model, manifest["result"])

    def _add_row(self, stage: Stage, model: Stage, result: Mapping[str, Any]) -> None:
        arm, task, seed = (model.labels[name] for name in ("arm", "task", "seed"))
        metric, metrics = result["main_metric"], result["metrics"]
        name = arm if seed == "0" else f"{arm}, seed {seed}"
        first, other = self._first.setdefault(task, (name, stage))
        seconds = sum(self._seconds.get(one.fingerprint, 0.0) for one in (model, stage))
        row = {
            "task": task,
            "arm": name,
            get_title(metric): format_with_interval(metric, metrics[metric]),
            "gain": "" if name == first else f"{self._compare(metric, stage, other)} over {first}",
            "seconds": f"{seconds:,.1f}",
        }
        is_new = self._rows.get((task, arm, seed)) != row
        self._rows[task, arm, seed] = row
        if not is_new:
            return
        values = {f"answers.{arm}.{task}.{n}": v["value"] for n, v in metrics.items()}
        self._runner.tracking.log_metrics({**values, f"answers.{arm}.{task}.seconds": seconds})
        about = "The arms that are evaluated so far, on test, with 95% intervals"
        artifacts.publish_table("answers", list(self._rows.values()), about)
        value = metrics[metric]["value"]
        rank = value if METRICS[metric].better == "higher" else -value
        named = f"{name}, {format_number(metric, value)}"
        self._best[task] = max(self._best.get(task, (rank, named)), (rank, named))
        best = "; ".join(f"{text} ({task})" for task, (_, text) in self._best.items())
        self._runner.notify("on_answer", row, f"best so far: {best}")

    def _compare(self, metric: str, stage: Stage, other: Stage) -> str:
        """Return the difference of two evaluations with its interval."""
        store = self._runner.store
        own, its = (
            read_predictions(store.fetch(one, "predictions.parquet") / "predictions.parquet")
            for one in (stage, other)
        )
        try:
            found = compare_arms(METRICS[metric], [own], [its])
        except UserError:  # of other examples
            return "not compared"
        low, high = (format_change(metric, end) for end in (found.low, found.high))
        change = format_change(metric, found.difference)
        return f"{change} ({low.removesuffix(' points')} to {high.removesuffix(' points')})"
