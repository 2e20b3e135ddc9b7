"""Mirrors a study into MLflow where MLFLOW_TRACKING_URI says so: one parent run, a nested one for every cell."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VARIABLE = "MLFLOW_TRACKING_URI"
REPORTED = ("report.html", "report.md", "report.json", "study.json", "model")


class Untracked:
    """Where there is no MLflow, or none was asked for."""

    @contextmanager
    def job(self, name: str, folder: Path, parameters: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[None]:
        """Follows the metrics.jsonl a job writes into `folder` while the block lasts."""
        yield

    def measured(self, name: str, evaluation: Path) -> None:
        """The test metrics of a finished cell, under its name."""

    def made_before(
        self,
        name: str,
        folder: Path,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        evaluation: Path | None = None,
    ) -> None:
        """What the study found complete: made by another one, or by itself at an earlier time."""

    def reported(self, folder: Path) -> None:
        """The report in `folder` as artifacts of the parent run."""


class Tracked(Untracked):
    def __init__(self, tracking: Any) -> None:
        self._tracking = tracking
        self._runs: dict[str, Any] = {}

    @contextmanager
    def job(self, name: str, folder: Path, parameters: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[None]:
        folder.mkdir(parents=True, exist_ok=True)
        with self._tracking.following(name, folder, parameters, tags) as run:
            self._runs[name] = run
            yield

    def measured(self, name: str, evaluation: Path) -> None:
        if name in self._runs:
            self._tracking.log_metrics(_test_metrics(evaluation), self._runs[name])

    def made_before(
        self,
        name: str,
        folder: Path,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        evaluation: Path | None = None,
    ) -> None:
        self._tracking.mirror(name, folder, parameters, tags, _test_metrics(evaluation) if evaluation else {})

    def reported(self, folder: Path) -> None:
        for name in REPORTED:
            if (folder / name).exists():
                self._tracking.log_folder(folder / name, "report/model" if name == "model" else "report")


def _test_metrics(evaluation: Path) -> dict[str, float]:
    metrics = json.loads((evaluation / "metrics.json").read_text())["metrics"]
    return {f"test_{metric}": values["value"] for metric, values in metrics.items()}


@contextmanager
def tracked(title: str, parameters: Mapping[str, Any], output: Path) -> Iterator[Untracked]:
    """A database has no place for artifacts of its own: they go beside the study, not to wherever it was started."""
    uri = os.environ.get(VARIABLE)
    if not uri or find_spec("mlflow") is None:
        yield Untracked()
        return
    from model.tracking import Tracking

    beside = "" if uri.startswith(("http:", "https:", "databricks")) else (output / "mlflow").resolve().as_uri()
    tracking = Tracking(uri, artifacts=beside)
    tracking.start(title, parameters, {"kind": "study"}, folder=output)
    status = "FAILED"
    try:
        yield Tracked(tracking)
        status = "FINISHED"
    finally:
        tracking.finish(status)
