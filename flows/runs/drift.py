"""Reports new files that differ from what the model was tested on: a table, and an event for each,
which an automation can answer with a run.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from prefect.artifacts import create_table_artifact
from prefect.events import emit_event
from prefect.runtime import flow_run

from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.servers.settings import DRIFT_EVENT
from amazon_electra.flows.ui import artifacts


def publish_drift(files: Sequence[Mapping[str, Any]], new: Collection[str]) -> None:
    """Show how files differ, as `score` counted them; emit an event for each of the `new` ones that
    does, with its name, and the sentence, expected and tested accuracy of each task as payload.
    """
    known = [
        (one["file"], task, drift) for one in files for task, drift in one.get("drift", {}).items()
    ]
    rows = [
        {
            "file": file,
            "task": task,
            "expected accuracy": f"{drift['expected']:.1%}",
            "95% interval": f"{drift['low']:.1%} to {drift['high']:.1%}",
            "on test": f"{drift['tested']:.1%}",
            "by its own labels": "" if drift["accuracy"] is None else f"{drift['accuracy']:.1%}",
            "unlike": f"{drift['unlike']:.0%}",
            "differs": "; ".join(drift["findings"]),
        }
        for file, task, drift in known
    ]
    if rows:
        about = "Does the model still hold? New files beside what it was tested on"
        artifacts.publish(create_table_artifact, rows, key="drift", description=about)
    for one in files:
        drifted = {task: drift for task, drift in one.get("drift", {}).items() if drift["findings"]}
        if not drifted or one["file"] not in new:
            continue
        for task, drift in drifted.items():
            find_run_logger().warning("%s, %s: %s", one["file"], task, drift["says"])
        named = ("says", "expected", "low", "high", "tested", "unlike")
        emit_event(
            DRIFT_EVENT,
            {"prefect.resource.id": f"reviews.scores.{one['file']}"},
            related=[
                {
                    "prefect.resource.id": f"prefect.flow-run.{flow_run.id}",
                    "prefect.resource.role": "flow-run",
                }
            ],
            payload={
                "file": one["file"],
                "tasks": {
                    task: {name: drift[name] for name in named} for task, drift in drifted.items()
                },
            },
        )
