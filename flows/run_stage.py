"""What a worker of a pool does for a run elsewhere: it makes stages of that run's graph.

The run writes an order into the store (flows/runner/pools/order.py), starts the deployment of the
pool, and waits; further orders follow while the same pool makes what comes next. Nobody starts this
by hand. The run that waits tells of failures: these have no hooks, and call no webhook.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import httpx
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from pydantic import Field

from beam_jobs.job.errors import UserError
from flows.configuration.parameters import STORE
from flows.configuration.sections import Section, take_fields
from flows.runner.pools.messages import choose_pause, find_order, post_answer
from flows.runner.pools.order import Chains, Order, read_order
from flows.runner.prefect_tasks import PrefectStageMaker
from flows.runner.stage_runner import StageRunner
from flows.runner.store import Stage, Store
from flows.runs.lost_runs import crash_lost_runs, follow_run
from flows.servers import mlflow_server
from flows.servers.access import restrict_store
from flows.servers.settings import PART_FLOW
from flows.stages.dump import check_copies
from flows.stages.external import check_place
from flows.stages.pretraining import check_device, has_accelerator
from flows.ui.artifacts import PrefectRun
from model.tracking.mlflow_run import Tracking

STAY_SECONDS = 60.0
"""For the next order: twice what the plan of the run that waits may say of it."""


class OrderForm(Section):
    """What a worker is asked to make."""

    order: str = Field(default="", description="Name of the order in the store")
    title: str = Field(default="stage", description="What it makes")
    store: str = STORE


@flow(name=PART_FLOW, flow_run_name="{title}")
@take_fields(OrderForm)
def run_stage(**given: Any) -> list[str]:
    """Make stages of another run's graph; return their fingerprints."""
    form = OrderForm(**given)
    if not form.order:
        raise UserError("run-stage: runs start it where engine.placement is pools, nobody else")
    store = Store(form.store)
    restrict_store(store.root)
    store.place.check_access()
    (store.root / "runs" / str(flow_run.id)).mkdir(parents=True, exist_ok=True)
    crash_lost_runs(store)
    made: list[str] = []
    with follow_run(store, str(flow_run.id), flow_run.name or ""), OrderMaker(store) as maker:
        for order in follow_orders(store, form.order):
            maker.make(order)
            made += [stage.fingerprint for stage in order.stages]
    return made


def follow_orders(store: Store, first: str) -> Iterator[Order]:
    """Yield the order that this run was started for, and others while they come; each is answered
    once it is made.
    """
    name, number, titles = first, 1, list[str]()
    run = UUID(str(flow_run.id))
    with get_client(sync_client=True) as client:
        while name:
            order = read_order(store, name)
            titles += [order.title] if order.chains else []
            if number > 1:
                client.update_flow_run(run, name=", ".join(titles))
            yield order
            post_answer(client, run, number)
            number += 1
            name = wait_for_order(client, run, number) if order.stays else ""


def wait_for_order(client: Any, run: UUID, number: int) -> str:
    """Return the name of the next order, or an empty text where none comes for a while."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < STAY_SECONDS:
        with suppress(httpx.HTTPError):
            if name := find_order(client, run, number):
                return name
        time.sleep(choose_pause(waited))
    return ""


class OrderMaker:
    """Makes all stages of orders in this process tree, with retries."""

    def __init__(self, store: Store):
        self._store = store
        self._tracking: Tracking | None = None

    def __enter__(self) -> "OrderMaker":
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if self._tracking:
            self._tracking.close("KILLED" if kind else "FINISHED")

    def make(self, order: Order) -> None:
        """Make the stages of an order; of one that has none, try whether they could be made."""
        if order.device and not order.chains:
            check_device(order.device)
        for stage in order.stages:
            check_sources(stage, self._store)
        for chains, at_once in divide_order(order):
            runner = StageRunner(
                self._store, [PrefectRun()], self._find_tracking(order), order.tags
            )
            PrefectStageMaker(runner, takes_accelerator=False).make_chains(chains, at_once)

    def _find_tracking(self, order: Order) -> Tracking:
        """Return the tracking of the run, connected where a stage has curves: to load MLflow takes
        seconds.
        """
        if self._tracking:
            return self._tracking
        tracking = build_tracking(self._store, order)
        if any(stage.tracked for stage in order.stages):
            tracking.join(order.mlflow_run)
            self._tracking = tracking
        return tracking


def check_sources(stage: Stage, store: Store) -> None:
    """Raise UserError where what no stage makes is not on this host as the run knows it."""
    for source in stage.inputs.values():
        if source.name == "external":
            check_place(source, store)
        elif source.name == "dump" and stage.name == "corpus":
            check_copies(source, store)


def divide_order(order: Order) -> list[tuple[Chains, int]]:
    """Return which chains are made at a time, and how many: an accelerator takes one pre-training
    after the other, and nothing beside.
    """
    if not order.device or not has_accelerator(order.device):
        return [(order.chains, order.at_once)] if order.chains else []
    trainings = [chain for chain in order.chains if chain[0].name == "pretraining"]
    others = [chain for chain in order.chains if chain not in trainings]
    parts = ([([chain], 1) for chain in trainings]) + [(others, order.at_once)]
    return [(chains, at_once) for chains, at_once in parts if chains]


def build_tracking(store: Store, order: Order) -> Tracking:
    """Return the tracking of the run in MLflow: at this host's address of the server, where it has
    one, else at the run's.
    """
    uri: Any = order.mlflow
    if os.environ.get("MLFLOW_TRACKING_URI") or not uri.startswith("http"):
        uri = mlflow_server.resolve_mlflow_uri(store.root)
    (store.root / "mlflow").mkdir(parents=True, exist_ok=True)
    return Tracking(uri, mlflow_server.choose_artifact_place(uri, store))
