"""What can be started from the Prefect UI, on this machine or by workers of a pool.

`flows.ui.serve` serves all of it; `python -m flows.ui.deployments` prints deploy/prefect.yaml, the
same for work pools (a test holds the two together).
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beam_jobs.core.errors import UserError
from flows.servers.settings import CLIENT, DUMP_EVENT, TAG
from flows.store.store import Store

log = logging.getLogger("amazon_electra")


@dataclass(frozen=True)
class DeploymentSpec:
    """A deployment: which flow, under which name, with which defaults besides the flow's own."""

    name: str
    entrypoint: str
    description: str
    pool: str = "cpu"
    """Work pool in production. Runs of `flows` wait for the stages that workers of the others make:
    of data (`cpu`), of training (`accelerator`, `tpu`).
    """
    parameters: dict[str, Any] = field(default_factory=dict)
    is_served: bool = True
    """Whether it is of use where all pools are one machine."""
    cron: str = ""
    """When it starts by itself (UTC); empty: only when somebody starts it."""
    event: str = ""
    """Event that starts it too; empty: none."""
    event_parameters: dict[str, str] = field(default_factory=dict)
    """Names in the event's payload by parameter; a parameter it does not name is empty."""
    after_flow: str = ""
    """Flow at the end of whose runs it starts too; empty: none."""

    @property
    def triggers(self) -> list[dict[str, Any]]:
        """One run for each event, as Prefect's deployment file writes it.

        The kind of template is named: of a bare one Prefect makes JSON.
        """
        found: list[dict[str, Any]] = []
        if self.event:
            parameters = {
                name: {
                    "__prefect_kind": "jinja",
                    "template": f"{{{{ event.payload.{key} or '' }}}}",
                }
                for name, key in self.event_parameters.items()
            }
            name = f"{self.name} on {self.event}"
            found.append({"name": name, "match": {}, "expect": [self.event]})
            found[-1]["parameters"] = parameters
        if self.after_flow:
            states = ("Completed", "Failed", "Crashed", "Cancelled")
            found.append(
                {
                    "name": f"{self.name} after {self.after_flow}",
                    "match": {"prefect.resource.id": "prefect.flow-run.*"},
                    "match_related": {
                        "prefect.resource.role": "flow",
                        "prefect.resource.name": self.after_flow,
                    },
                    "expect": [f"prefect.flow-run.{state}" for state in states],
                }
            )
        return [{**trigger, "enabled": True} for trigger in found]


WAITING = "flows"
"""Pool of the runs whose stages are made by workers of others; a run takes 230 MB."""
PLACED = {"placement": "pools"}
"""What the section `engine` of such a run's form says."""
PART = "flows.run_stage.run_stage"
"""Flow of what workers make of other runs."""
ENGINE = "python -m prefect.engine"
"""What a worker starts for a run. Where nothing is named it starts this as well, after a process
that imports Prefect and the flow to find out that the run needs no folder of its own.
"""
DEPLOYMENTS = (
    DeploymentSpec(
        "domain-adaptation",
        "flows.domain_adaptation.domain_adaptation",
        "The whole graph: dump → corpus → vocabulary → shards → pre-training → fine-tuning → "
        "report. Works as it is: without a change it adapts the recipe `sample` to a synthetic "
        "dump in a few minutes.",
        pool=WAITING,
    ),
    DeploymentSpec(
        "add-dump",
        "flows.add_dump.add_dump",
        "A new dump is added to what a model has seen: only the new reviews are read, training "
        "continues on new and old data, and the study compares the new model with the champion. "
        "Needs a finished run in the store.",
        pool=WAITING,
    ),
    DeploymentSpec(
        "prepare-data",
        "flows.partial_flows.prepare_data",
        "The data alone: dump → corpus → vocabulary → shards, which later runs find complete.",
        pool=WAITING,
    ),
    DeploymentSpec(
        "pre-train",
        "flows.partial_flows.pre_train",
        "Data and pre-training: up to the encoder, as a transformers folder.",
        pool=WAITING,
    ),
    DeploymentSpec(
        "study",
        "flows.study.study",
        "Arms × tasks × seeds from a study file: comparisons with intervals and paired tests.",
        pool=WAITING,
    ),
    DeploymentSpec(
        "watch-dumps",
        "flows.watch.watch_dumps",
        "Looks for new dumps and starts one run of domain-adaptation or of add-dump "
        "for each, once.",
        cron="*/15 * * * *",
        event=DUMP_EVENT,
        event_parameters={"announced": "dump"},
        after_flow="add-dump",
    ),
    DeploymentSpec(
        "score",
        "flows.score.score",
        "The champion over a dump: label, probabilities and model version for every record of each "
        "file, in order. With a schedule, new files alone.",
    ),
    *(
        DeploymentSpec(
            f"run-stage-{pool}",
            PART,
            "Makes a stage of a run that waits for it (engine.placement: pools). Runs start it.",
            pool=pool,
            is_served=False,
        )
        for pool in ("cpu", "accelerator", "tpu")
    ),
)


def build_deployments(store: Path) -> list[Any]:
    """Return the deployments of this machine, with their results in this store.

    What people changed in the UI stays as they left it.
    """
    from prefect.client.orchestration import get_client
    from prefect.deployments.runner import EntrypointType
    from prefect.events import DeploymentEventTrigger
    from prefect.utilities.importtools import import_object

    deployments, address = [], Store(store).address
    with get_client(sync_client=True) as client:
        for spec in DEPLOYMENTS:
            if not spec.is_served:
                continue
            flow, earlier = import_object(spec.entrypoint), read_deployment(client, spec)
            edited = read_edited_parameters(flow, spec, earlier)
            triggers = [DeploymentEventTrigger(**trigger) for trigger in spec.triggers]
            deployment = flow.to_deployment(
                name=spec.name,
                description=spec.description,
                tags=[TAG],
                parameters={**spec.parameters, **edited, "store": address},
                paused=earlier.paused if earlier else False,
                schedules=build_schedules(spec, earlier),
                triggers=triggers or None,
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
            deployments.append(deployment)
    return deployments


def read_deployment(client: Any, spec: DeploymentSpec) -> Any:
    """Return the deployment as the server knows it from an earlier start, or None."""
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(f"{spec.name}/{spec.name}")
    except ObjectNotFound:
        return None


def build_schedules(spec: DeploymentSpec, earlier: Any) -> list[Any]:
    """Return the schedules of an earlier start as people left them, else the shipped one."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.schedules import Cron

    if earlier is None:
        return [Cron(spec.cron, timezone="UTC", slug=spec.name)] if spec.cron else []
    fields = set(DeploymentScheduleCreate.model_fields)
    return [
        DeploymentScheduleCreate.model_validate(schedule.model_dump(include=fields))
        for schedule in earlier.schedules
    ]


def read_edited_parameters(flow: Any, spec: DeploymentSpec, earlier: Any) -> dict[str, Any]:
    """Return the parameters people gave a deployment in the UI, if the form still takes them."""
    if earlier is None:
        return {}
    edited = {
        name: value
        for name, value in earlier.parameters.items()
        if name in flow.parameters.properties
    }
    try:
        flow.validate_parameters(edited)
    except Exception as error:
        log.warning(
            "%s has its shipped defaults again, the form no longer takes its own: %s",
            spec.name,
            error,
        )
        return {}
    return edited


def check_store(store: str) -> None:
    """Raise UserError if AMAZON_ELECTRA_STORE is not set.

    A step of `prefect deploy`, which takes a variable that is not set for an empty word.
    """
    if not Path(store).is_absolute() and "://" not in store:
        raise UserError(
            f"AMAZON_ELECTRA_STORE is {store!r}: set it to the store's folder as the workers see "
            "it, or to its address"
        )


def build_prefect_file() -> dict[str, Any]:
    """Return Prefect's deployment file; AMAZON_ELECTRA_STORE names the store of the workers.

    The flows are installed where the workers are, so nothing is pulled; without a step of ours
    Prefect has them go to the folder in which somebody typed `prefect deploy`. What a run's
    processes set is written here, not set by each worker.
    """
    store = "{{ $AMAZON_ELECTRA_STORE }}"
    described: list[dict[str, Any]] = []
    for spec in DEPLOYMENTS:
        placed: dict[str, Any] = {"engine": dict(PLACED)} if spec.pool == WAITING else {}
        command: dict[str, Any] = {"command": ENGINE} if spec.entrypoint == PART else {}
        schedule = {"cron": spec.cron, "timezone": "UTC", "slug": spec.name}
        described.append(
            {
                "name": spec.name,
                "entrypoint": spec.entrypoint,
                "description": spec.description,
                "tags": [TAG],
                "parameters": {**spec.parameters, **placed, "store": store},
                "work_pool": {"name": spec.pool, "job_variables": {**command, "env": dict(CLIENT)}},
                "schedules": [schedule] if spec.cron else [],
                "triggers": spec.triggers,
            }
        )
    return {
        "name": "amazon-electra",
        "build": [{"flows.ui.deployments.check_store": {"store": store}}],
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "/"}}],
        "deployments": described,
    }


def format_prefect_yaml() -> str:
    """Return the text of deploy/prefect.yaml."""
    import yaml

    head = "# Made by `python -m flows.ui.deployments`; change flows/ui/deployments.py instead.\n"
    return head + yaml.safe_dump(
        build_prefect_file(), sort_keys=False, allow_unicode=True, width=110
    )


if __name__ == "__main__":
    print(format_prefect_yaml(), end="")
