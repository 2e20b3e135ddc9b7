"""The deployments of deployments.yaml, with what people changed of them in the UI, and the
automation on lost runs. `python -m amazon_electra.flows.ui.deployments STORE` serves them on this
machine, for `amazon-electra up`; `--pools` makes two pools and gives them to their workers.
"""

import asyncio
import logging
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from prefect.automations import Automation, EventTrigger
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitConfig, StateType
from prefect.deployments.runner import EntrypointType
from prefect.events import DeploymentEventTrigger
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import Posture
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, TerminationSignal
from prefect.runner import Runner
from prefect.utilities.importtools import import_object
from prefect.workers.process import ProcessWorker

from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.flows.servers.access import CLIENT, LOST_SECONDS, PAUSED_EVENT, READY_FILE, TAG
from amazon_electra.flows.store.store import Store

log = logging.getLogger("amazon_electra")

PREPARE = "prepare"  # flow that works for others of another host; `up` has one
FILE = Path(__file__).with_name("deployments.yaml")
ENDED = ("Completed", "Failed", "Crashed", "Cancelled", "Paused", "Suspended")  # no heartbeats


def serve(store: Store) -> None:
    """Serve until stopped; each flow run is a process of its own."""
    runner = Runner(name="amazon-electra", pause_on_shutdown=False)
    for deployment in build_deployments(store.address):
        runner.add_deployment(deployment)
    create_automation()
    (store.root / READY_FILE).touch()
    with suppress(KeyboardInterrupt, TerminationSignal):
        asyncio.run(runner.start())


def deploy(store: str) -> None:
    """Make the pools that are missing, and all deployments, on a store as the workers see it."""
    if not (store.startswith("/") or is_remote(store)):
        why = "is not the store as the workers see it, from / on, or an address"
        sys.exit(f"error: {store!r} {why}")
    deployments = build_deployments(store, in_pools=True)
    template = ProcessWorker.get_default_base_job_template()
    for name in {deployment.work_pool_name for deployment in deployments}:
        pool = WorkPoolCreate(name=name, type="process", base_job_template=template)
        with suppress(ObjectAlreadyExists), get_client(sync_client=True) as client:
            client.create_work_pool(pool)
    for deployment in deployments:
        deployment.apply()
    create_automation()


def build_deployments(store: str, in_pools: bool = False) -> list[Any]:
    """Return the deployments of this machine, or of the pools, with their results in this store."""
    deployments: list[Any] = []
    for entry in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        flow, earlier = import_object(entry["entrypoint"]), None
        if flow.name == PREPARE and not in_pools:
            continue
        with suppress(ObjectNotFound), get_client(sync_client=True) as client:
            earlier = client.read_deployment_by_name(f"{flow.name}/{flow.name}")
        limit, schedules = entry.get("concurrency_limit"), entry.get("schedules", [])
        if earlier:
            fields = set(DeploymentScheduleCreate.model_fields)
            schedules = [one.model_dump(include=fields) for one in earlier.schedules]
        pool = {"work_pool_name": entry["pool"], "job_variables": {"env": dict(CLIENT)}}
        shipped = entry.get("parameters", {}) if in_pools else {}
        deployment = flow.to_deployment(
            name=flow.name,
            description=entry["description"],
            tags=[TAG],
            parameters={**shipped, **read_edited(flow, earlier), "store": store},
            paused=earlier.paused if earlier else False,
            schedules=[DeploymentScheduleCreate.model_validate(one) for one in schedules],
            triggers=[DeploymentEventTrigger(**one) for one in entry.get("triggers", [])] or None,
            concurrency_limit=ConcurrencyLimitConfig(**limit) if limit else None,
            entrypoint_type=EntrypointType.MODULE_PATH,
            **(pool if in_pools else {}),
        )
        deployments.append(deployment)
    return deployments


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


def create_automation() -> None:
    """Create or renew the automation on lost runs; a second call doubles nothing."""
    automation = build_automation()
    with get_client(sync_client=True) as client:
        for earlier in client.read_automations_by_name(automation.name):
            client.delete_automation(earlier.id)
    automation.create()


def build_automation() -> Automation:
    """Return what marks runs Crashed whose machine was lost with them. Heartbeats and changes of
    state name the run's tags: runs of others on the same server are left alone.
    """
    heartbeat, message = "prefect.flow-run.heartbeat", "no sign of life; start it again"
    ends = {f"prefect.flow-run.{state}" for state in ENDED}
    crash = ChangeFlowRunState(name=None, state=StateType.CRASHED, message=message, force=False)
    return Automation(
        name="lost runs are crashed",
        description=f"A run without a heartbeat for {LOST_SECONDS // 60} minutes; start it again, "
        "it continues where it was.",
        trigger=EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={
                "prefect.resource.role": "tag",
                "prefect.resource.id": f"prefect.tag.{TAG}",
            },
            after={heartbeat},
            expect={heartbeat, PAUSED_EVENT, *ends},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=LOST_SECONDS),
        ),
        actions=[crash],
    )


if __name__ == "__main__":
    if sys.argv[2:] == ["--pools"]:
        deploy(sys.argv[1])
    else:
        serve(Store(sys.argv[1]))
