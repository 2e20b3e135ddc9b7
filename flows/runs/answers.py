"""The answers of a run so far: a table that grows by a line for each arm that is evaluated, in the
terminal, in a Prefect artifact and in MLflow.
"""

import threading

from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest
from amazon_electra.flows.ui import artifacts
from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.report.formats import format_number, format_with_interval, get_title


class Answers:
    """Hears of evaluations; each becomes a row."""

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
            artifacts.publish_table("answers", list(self._rows.values()), about)
            value = metrics[metric]["value"]
            rank = value if METRICS[metric].better == "higher" else -value
            named = f"{name}, {format_number(metric, value)}"
            self._best[task] = max(self._best.get(task, (rank, named)), (rank, named))
            best = "; ".join(f"{text} ({task})" for task, (_, text) in self._best.items())
            self._runner.notify("on_answer", row, f"best so far: {best}")
