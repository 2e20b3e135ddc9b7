"""What can be started from the Prefect UI, and how one machine serves it; deploy/prefect.yaml is for work pools.

`python -m flows.deployments STORE` serves all of them; `amazon-electra up` keeps that process alive.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Offer:
    """A deployment: which flow, under which name, with which defaults besides the flow's own."""

    name: str
    entrypoint: str
    description: str
    tags: tuple[str, ...] = ("amazon-electra",)
    parameters: dict[str, Any] = field(default_factory=dict)
    cron: str = ""
    """When it starts by itself; empty: when somebody starts it."""


OFFERS = (
    Offer(
        "domain-adaptation",
        "flows.domain_adaptation:domain_adaptation",
        "The whole graph: dump → corpus → vocabulary → shards → pre-training → fine-tuning → report. "
        "Works as it is: without a change it adapts the tiny preset to a synthetic dump in a few minutes.",
    ),
    Offer(
        "prepare-data",
        "flows.parts:prepare_data",
        "The data alone: dump → corpus → vocabulary → shards, which later runs find complete.",
    ),
    Offer(
        "pre-train",
        "flows.parts:pre_train",
        "Data and pre-training: up to the encoder, as a transformers folder.",
    ),
)


def served(store: Path) -> list[Any]:
    """The deployments of this machine, their results in this store."""
    from prefect.deployments.runner import EntrypointType
    from prefect.schedules import Cron
    from prefect.utilities.importtools import import_object

    deployments = []
    for offer in OFFERS:
        flow = import_object(offer.entrypoint.replace(":", "."))
        deployments.append(
            flow.to_deployment(
                name=offer.name,
                description=offer.description,
                tags=list(offer.tags),
                parameters={**offer.parameters, "store": str(store)},
                schedules=[Cron(offer.cron, timezone="UTC", slug=offer.name)] if offer.cron else None,
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
        )
    return deployments


def main() -> None:
    """Serves until it is told to end; each flow run is a process of its own."""
    from prefect import serve

    store = Path(sys.argv[1]).resolve()
    deployments = served(store)
    (store / "logs" / "deployments.ready").touch()
    serve(*deployments, pause_on_shutdown=False, limit=int(os.environ.get("RUNS_AT_ONCE", "4")))


if __name__ == "__main__":
    main()
