"""Shows whether the model still holds for new files, as a table of the run."""

from collections.abc import Mapping, Sequence
from typing import Any

from prefect.artifacts import create_table_artifact

from amazon_electra.flows.ui import artifacts


def publish_drift(files: Sequence[Mapping[str, Any]]) -> None:
    """Show how files differ from what the model was tested on, as `score` counted them."""
    rows = [
        {
            "file": one["file"],
            "task": task,
            "expected accuracy": f"{drift['expected']:.1%}",
            "95% interval": f"{drift['low']:.1%} to {drift['high']:.1%}",
            "on test": f"{drift['tested']:.1%}",
            "by its own labels": "" if drift["accuracy"] is None else f"{drift['accuracy']:.1%}",
            "differs": "; ".join(drift["findings"]),
        }
        for one in files
        for task, drift in one.get("drift", {}).items()
    ]
    if rows:
        about = "Does the model still hold? New files beside what it was tested on"
        artifacts.publish(create_table_artifact, rows, key="drift", description=about)
