"""Reports new files that differ from what the model was tested on: a table, and an event for each,
which an automation can answer with a run of add-dump.
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
    does, with its name, the sentence, and expected and tested accuracy as payload.
    """
    known = [one for one in files if "drift" in one]
    rows = [
        {
            "file": one["file"],
            "expected accuracy": f"{drift['expected']:.1%}",
            "95% interval": f"{drift['low']:.1%} to {drift['high']:.1%}",
            "on test": f"{drift['tested']:.1%}",
            "by its own labels": "" if drift["accuracy"] is None else f"{drift['accuracy']:.1%}",
            "unlike": f"{drift['unlike']:.0%}",
            "differs": "; ".join(drift["findings"]),
        }
        for one in known
        for drift in [one["drift"]]
    ]
    if rows:
        about = "Does the model still hold? New files beside what it was tested on"
        artifacts.publish(create_table_artifact, rows, key="drift", description=about)
    for one in known:
        drift = one["drift"]
        if not drift["findings"] or one["file"] not in new:
            continue
        find_run_logger().warning("%s: %s", one["file"], drift["says"])
        emit_event(
            DRIFT_EVENT,
            {"prefect.resource.id": f"reviews.scores.{one['file']}"},
            related=[
                {
                    "prefect.resource.id": f"prefect.flow-run.{flow_run.id}",
                    "prefect.resource.role": "flow-run",
                }
            ],
            payload={name: drift[name] for name in ("says", "expected", "tested", "unlike")}
            | {"file": one["file"]},
        )
