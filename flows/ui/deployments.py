"""Serves the deployments of flows/ui/prefect.yaml on this machine.

`python -m amazon_electra.flows.ui.deployments` writes them, with what people changed in the UI,
into a new file and prints its name, for deploy/deployments.sh.
"""

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.servers.settings import TAG
from amazon_electra.flows.store.store import Store

log = logging.getLogger("amazon_electra")

PREPARE = "prepare"
"""Flow that works for others of another host; `up` has one."""

PREFECT_FILE = Path(__file__).with_name("prefect.yaml")


def read_deployments() -> list[dict[str, Any]]:
    """Return the deployments as the file describes them."""
    described: list[dict[str, Any]] = yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8"))[
        "deployments"
    ]
    return described


def build_deployments(store: Path) -> list[Any]:
    """Return the deployments of this machine, with their results in this store; it makes the stages
    of its runs itself.

    What people changed in the UI stays as they left it.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.objects import ConcurrencyLimitConfig
    from prefect.deployments.runner import EntrypointType
    from prefect.events import DeploymentEventTrigger
    from prefect.exceptions import ObjectNotFound
    from prefect.utilities.importtools import import_object

    deployments: list[Any] = []
    with get_client(sync_client=True) as client:
        for entry in read_deployments():
            flow, name = import_object(entry["entrypoint"]), entry["name"]
            limit = entry.get("concurrency_limit")
            if flow.name == PREPARE:
                continue
            earlier: Any = None
            try:
                earlier = client.read_deployment_by_name(f"{flow.name}/{name}")
                schedules = [
                    one.model_dump(include=set(DeploymentScheduleCreate.model_fields))
                    for one in earlier.schedules
                ]
            except ObjectNotFound:
                schedules = [
                    {"schedule": {"cron": one["cron"], "timezone": "UTC"}, "slug": one["slug"]}
                    for one in entry.get("schedules", [])
                ]
            deployment = flow.to_deployment(
                name=name,
                description=entry["description"],
                tags=[TAG],
                parameters={**read_edited(flow, earlier), "store": Store(store).address},
                paused=earlier.paused if earlier else False,
                schedules=[DeploymentScheduleCreate.model_validate(one) for one in schedules],
                triggers=[DeploymentEventTrigger(**one) for one in entry.get("triggers", [])]
                or None,
                concurrency_limit=ConcurrencyLimitConfig(**limit) if limit else None,
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
            deployments.append(deployment)
    return deployments


def write_edited_file() -> Path:
    """Write the deployments into a new file, with the parameters and pauses that the server has."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.utilities.importtools import import_object

    described = yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8"))
    with get_client(sync_client=True) as client:
        for entry in described["deployments"]:
            flow = import_object(entry["entrypoint"])
            try:
                earlier = client.read_deployment_by_name(f"{flow.name}/{entry['name']}")
            except ObjectNotFound:
                continue
            shipped, edited = entry["parameters"], read_edited(flow, earlier)
            if "{{" in json.dumps(edited):  # `prefect deploy` would fill in variables, secrets too
                log.warning("%s has its shipped defaults again, its own hold {{", flow.name)
                edited = {}
            entry["parameters"] = {**shipped, **edited, "store": shipped["store"]}
            entry["paused"] = earlier.paused
    handle, name = tempfile.mkstemp(suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        yaml.safe_dump(described, file, allow_unicode=True)
    return Path(name)


def read_edited(flow: Any, earlier: Any) -> dict[str, Any]:
    """Return the parameters people gave a deployment in the UI, if the form still takes them."""
    given = earlier.parameters if earlier else {}
    edited = {name: value for name, value in given.items() if name in flow.parameters.properties}
    try:
        flow.validate_parameters(edited)
    except Exception as error:
        text = "%s has its shipped defaults again, the form no longer takes its own: %s"
        log.warning(text, flow.name, error)
        return {}
    return edited


if __name__ == "__main__":
    print(write_edited_file())
