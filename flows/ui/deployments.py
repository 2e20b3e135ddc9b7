"""The deployments of flows/ui/prefect.yaml, with what people changed of them in the UI.

`python -m amazon_electra.flows.ui.deployments STORE` serves them on this machine, for
`amazon-electra up`; without a store it writes them into a new file and prints its name, for
deploy/deployments.sh. Both create the automations.
"""

import asyncio
import json
import logging
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.deployments.runner import EntrypointType
from prefect.events import DeploymentEventTrigger
from prefect.exceptions import ObjectNotFound, TerminationSignal
from prefect.runner import Runner
from prefect.utilities.importtools import import_object

from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.servers.settings import CLIENT, READY_FILE, TAG
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.ui.automations import create_automations

log = logging.getLogger("amazon_electra")

PREPARE = "prepare"
"""Flow that works for others of another host; `up` has one."""
PREFECT_FILE = Path(__file__).with_name("prefect.yaml")


def serve(store: Path) -> None:
    """Serve until stopped; each flow run is a process of its own."""
    runner = Runner(name="amazon-electra", pause_on_shutdown=False)
    for deployment in build_deployments(store):
        runner.add_deployment(deployment)
    create_automations()
    (store / READY_FILE).parent.mkdir(parents=True, exist_ok=True)
    (store / READY_FILE).touch()
    with suppress(KeyboardInterrupt, TerminationSignal):
        asyncio.run(runner.start())


def read_file() -> dict[str, Any]:
    """Return the deployments as the file describes them."""
    return dict(yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8")))


def find_earlier(client: Any, flow: Any, name: str) -> Any:
    """Return a deployment as the server has it, None where it has none."""
    with suppress(ObjectNotFound):
        return client.read_deployment_by_name(f"{flow.name}/{name}")
    return None


def build_deployments(store: Path) -> list[Any]:
    """Return the deployments of this machine, with their results in this store."""
    deployments: list[Any] = []
    with get_client(sync_client=True) as client:
        for entry in read_file()["deployments"]:
            flow, limit = import_object(entry["entrypoint"]), entry.get("concurrency_limit")
            if flow.name == PREPARE:
                continue
            earlier = find_earlier(client, flow, entry["name"])
            schedules = [
                {"schedule": {"cron": one["cron"], "timezone": "UTC"}, "slug": one["slug"]}
                for one in entry.get("schedules", [])
            ]
            if earlier:
                fields = set(DeploymentScheduleCreate.model_fields)
                schedules = [one.model_dump(include=fields) for one in earlier.schedules]
            deployment = flow.to_deployment(
                name=entry["name"],
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


def write_edited_file() -> str:
    """Write the deployments into a new file, with the environment of their runs, and with the
    parameters and pauses that the server has; return its name.
    """
    described = read_file()
    with get_client(sync_client=True) as client:
        for entry in described["deployments"]:
            entry["work_pool"]["job_variables"] = {"env": dict(CLIENT)}
            flow = import_object(entry["entrypoint"])
            if not (earlier := find_earlier(client, flow, entry["name"])):
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
    return name


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
    if len(sys.argv) > 1:
        serve(Path(sys.argv[1]).resolve())
    else:
        create_automations()
        print(write_edited_file())
