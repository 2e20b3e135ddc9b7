"""What can be started from the Prefect UI, and how one machine serves it.

`python -m flows.deployments serve STORE` serves all of them; `amazon-electra up` keeps that process alive.
`python -m flows.deployments yaml` prints deploy/prefect.yaml, the same for work pools (a test holds the two together).
"""

import asyncio
import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beam_jobs.command import UserMistake
from flows.servers import CLIENT
from model.json_file import write_json

log = logging.getLogger("amazon_electra")

TAG = "amazon-electra"
"""Of every run of ours: by it the automations tell them from other people's on the same server."""
ACCELERATOR = "accelerator"
"""Tag of the tasks that need the machine's one GPU, TPU or all its cores."""
EVENT = "reviews.dump.arrived"
"""Whoever emits it, a storage notification or a webhook, has the watcher look at once."""

READY = Path("logs", "deployments.ready")
"""In the store: the mark of the process that serves them."""


@dataclass(frozen=True)
class Offer:
    """A deployment: which flow, under which name, with which defaults besides the flow's own."""

    name: str
    entrypoint: str
    description: str
    pool: str = "cpu"
    """Work pool in production; those of `accelerator` have a GPU or TPU."""
    parameters: dict[str, Any] = field(default_factory=dict)
    cron: str = ""
    """When it starts by itself (UTC); empty: when somebody starts it."""
    event: str = ""
    """What starts it besides; empty: nothing."""
    from_event: dict[str, str] = field(default_factory=dict)
    """Parameters by what the event's payload calls them; empty where it says nothing."""


OFFERS = (
    Offer(
        "domain-adaptation",
        "flows.domain_adaptation.domain_adaptation",
        "The whole graph: dump → corpus → vocabulary → shards → pre-training → fine-tuning → report. "
        "Works as it is: without a change it adapts the tiny preset to a synthetic dump in a few minutes.",
        pool="accelerator",
        parameters={"promotion": {"mode": "automatic"}},
    ),
    Offer(
        "add-dump",
        "flows.add_dump.add_dump",
        "A new dump is added to what a model has seen: only the new reviews are read, training goes on on new and old "
        "data, and the study compares the new model with the champion. Needs a finished run in the store.",
        pool="accelerator",
        parameters={"promotion": {"mode": "automatic"}},
    ),
    Offer(
        "prepare-data",
        "flows.parts.prepare_data",
        "The data alone: dump → corpus → vocabulary → shards, which later runs find complete.",
    ),
    Offer(
        "pre-train",
        "flows.parts.pre_train",
        "Data and pre-training: up to the encoder, as a transformers folder.",
        pool="accelerator",
    ),
    Offer(
        "study",
        "flows.parts.study",
        "Arms × tasks × seeds from a study file: comparisons with intervals and paired tests.",
        pool="accelerator",
    ),
    Offer(
        "watch-dumps",
        "flows.watch.watch_dumps",
        "Looks for new dumps and starts one run of domain-adaptation or of add-dump for each, once.",
        cron="*/15 * * * *",
        event=EVENT,
        from_event={"announced": "dump"},
    ),
    Offer(
        "score",
        "flows.scoring.score",
        "The champion over a dump: Parquet with label, probability and model version for every review.",
    ),
)


def served(store: Path) -> list[Any]:
    """The deployments of this machine, their results in this store; what people changed in the UI stays."""
    from prefect.client.orchestration import get_client
    from prefect.deployments.runner import EntrypointType
    from prefect.events import DeploymentEventTrigger
    from prefect.utilities.importtools import import_object

    deployments = []
    with get_client(sync_client=True) as client:
        for offer in OFFERS:
            flow, before = import_object(offer.entrypoint), registered(client, offer)
            deployments.append(
                flow.to_deployment(
                    name=offer.name,
                    description=offer.description,
                    tags=[TAG],
                    parameters={**offer.parameters, **changed(flow, offer, before), "store": str(store)},
                    paused=before.paused if before else False,
                    schedules=schedules(offer, before),
                    triggers=[DeploymentEventTrigger(**trigger(offer))] if offer.event else None,
                    entrypoint_type=EntrypointType.MODULE_PATH,
                )
            )
    return deployments


def registered(client: Any, offer: Offer) -> Any:
    """The deployment as the server knows it from an earlier start, or None."""
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(f"{offer.name}/{offer.name}")
    except ObjectNotFound:
        return None


def schedules(offer: Offer, before: Any) -> list[Any]:
    """Those of an earlier start, as people left them; at the first start the shipped one."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.schedules import Cron

    if before is None:
        return [Cron(offer.cron, timezone="UTC", slug=offer.name)] if offer.cron else []
    return [
        DeploymentScheduleCreate.model_validate(one.model_dump(include=set(DeploymentScheduleCreate.model_fields)))
        for one in before.schedules
    ]


def changed(flow: Any, offer: Offer, before: Any) -> dict[str, Any]:
    """The parameters people gave a deployment in the UI, as far as the form still has them and takes them."""
    if before is None:
        return {}
    given = {name: value for name, value in before.parameters.items() if name in flow.parameters.properties}
    try:
        flow.validate_parameters(given)
    except Exception as wrong:
        log.warning("%s has its shipped defaults again, the form no longer takes its own: %s", offer.name, wrong)
        return {}
    return given


def trigger(offer: Offer) -> dict[str, Any]:
    """One run for each event.

    The kind is named: of a bare template Prefect makes JSON, and what the payload lacks is none.
    """
    parameters = {
        name: {"__prefect_kind": "jinja", "template": f"{{{{ event.payload.{key} or '' }}}}"}
        for name, key in offer.from_event.items()
    }
    name = f"{offer.name} on {offer.event}"
    return {"name": name, "enabled": True, "match": {}, "expect": [offer.event], "parameters": parameters}


def check_store(store: str) -> None:
    """A step of `prefect deploy`, which takes a variable that is not set for an empty word."""
    if not Path(store).is_absolute():
        raise UserMistake(f"AMAZON_ELECTRA_STORE is {store!r}: set it to the store's folder as the workers see it")


def described() -> dict[str, Any]:
    """The same as Prefect's deployment file; AMAZON_ELECTRA_STORE names the store of the workers.

    The flows are installed where the workers are, so nothing is pulled; without a step of ours Prefect has them go to
    the folder in which somebody typed `prefect deploy`. What a run's processes set is said here, not by each worker.
    """
    store = "{{ $AMAZON_ELECTRA_STORE }}"
    return {
        "name": "amazon-electra",
        "build": [{"flows.deployments.check_store": {"store": store}}],
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "/"}}],
        "deployments": [
            {
                "name": offer.name,
                "entrypoint": offer.entrypoint,
                "description": offer.description,
                "tags": [TAG],
                "parameters": {**offer.parameters, "store": store},
                "work_pool": {"name": offer.pool, "job_variables": {"env": dict(CLIENT)}},
                "schedules": [{"cron": offer.cron, "timezone": "UTC", "slug": offer.name}] if offer.cron else [],
                "triggers": [trigger(offer)] if offer.event else [],
            }
            for offer in OFFERS
        ],
    }


def as_yaml() -> str:
    import yaml

    head = "# Made by `python -m flows.deployments yaml`; change flows/deployments.py instead.\n"
    return head + yaml.safe_dump(described(), sort_keys=False, allow_unicode=True, width=110)


def runs_at_once() -> int:
    """So many that runs which wait for the accelerator leave room for the watcher.

    One that waits is an idle process of 230 MB, 170 of them its own (ps, Prefect 3.8 on Linux).
    """
    given = os.environ.get("AMAZON_ELECTRA_RUNS_AT_ONCE") or "16"
    if not given.isdecimal() or not int(given):
        raise UserMistake(f"AMAZON_ELECTRA_RUNS_AT_ONCE is {given!r}: write a number of runs, for example 16")
    return int(given)


def serve_all(store: Path) -> None:
    """Serves until it is told to end; each flow run is a process of its own."""
    from prefect.exceptions import TerminationSignal
    from prefect.runner import Runner

    from flows import automations, holding

    runner = Runner(name="amazon-electra", pause_on_shutdown=False, limit=runs_at_once())
    known: list[Any] = [runner.add_deployment(deployment) for deployment in served(store)]
    automations.ensure()
    automations.settle(known)
    (store / READY).parent.mkdir(parents=True, exist_ok=True)
    write_json(store / READY, holding.mark())
    with suppress(KeyboardInterrupt, TerminationSignal):
        asyncio.run(runner.start())


if __name__ == "__main__":
    if sys.argv[1] == "yaml":
        print(as_yaml(), end="")
    else:
        try:
            serve_all(Path(sys.argv[2]).resolve())
        except UserMistake as mistake:
            print(f"error: {mistake}", file=sys.stderr)
            sys.exit(2)
