"""What a worker of a pool does for a run elsewhere: it makes stages of that run's graph.

The run writes an order into the store (flows/runner/pools/order.py), starts the deployment of the
pool, and waits. Nobody starts this by hand.
"""

import os
from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from beam_jobs.job.errors import UserError
from flows.configuration.parameters import STORE
from flows.configuration.sections import Section, take_fields
from flows.runner.cancellation import watch_for_cancellation
from flows.runner.failures import FAILURE_HOOKS
from flows.runner.pools.order import Order, read_order
from flows.runner.prefect_tasks import PrefectStageMaker
from flows.runner.processes import end_children_on_error
from flows.runner.stage_runner import StageRunner
from flows.runner.store import Store
from flows.runs.lost_runs import crash_lost_runs, mark_run
from flows.servers import mlflow_server
from flows.servers.access import restrict_store
from flows.stages.dump import check_copies
from flows.stages.pretraining import check_device
from flows.ui.artifacts import PrefectRun
from model.tracking.mlflow_run import Tracking


class OrderForm(Section):
    """What a worker is asked to make."""

    order: str = Field(default="", description="Name of the order in the store")
    title: str = Field(default="stage", description="What it makes")
    store: str = STORE


@flow(name="run-stage", flow_run_name="{title}", **FAILURE_HOOKS)
@take_fields(OrderForm)
def run_stage(**given: Any) -> list[str]:
    """Make stages of another run's graph; return their fingerprints."""
    form = OrderForm(**given)
    if not form.order:
        raise UserError("run-stage: runs start it where engine.placement is pools, nobody else")
    store = Store(form.store)
    restrict_store(store.root)
    store.place.check_access()
    asked = read_order(store, form.order)
    if asked.device:
        check_device(asked.device)
    for stage in asked.stages:
        if stage.name == "corpus":
            check_copies(stage.inputs["dump"], store)
    if asked.chains:
        make_order(store, asked)
    return [stage.fingerprint for stage in asked.stages]


def make_order(store: Store, order: Order) -> None:
    """Make all stages of an order in this process tree, with retries."""
    tracking = connect_tracking(store, order)
    (store.root / "runs" / str(flow_run.id)).mkdir(parents=True, exist_ok=True)
    crash_lost_runs(store)
    runner = StageRunner(store, [PrefectRun()], tracking, order.tags)
    status = "KILLED"
    try:
        with (
            mark_run(store, str(flow_run.id), flow_run.name or ""),
            end_children_on_error(),
            watch_for_cancellation(str(flow_run.id)),
        ):
            maker = PrefectStageMaker(runner, takes_accelerator=False)
            maker.make_side_by_side(order.chains, order.at_once)
        status = "FINISHED"
    finally:
        tracking.close(status)


def connect_tracking(store: Store, order: Order) -> Tracking:
    """Return the tracking of the run in MLflow: at this host's address of the server, where it has
    one, else at the run's.
    """
    uri: Any = order.mlflow
    if os.environ.get("MLFLOW_TRACKING_URI") or not uri.startswith("http"):
        uri = mlflow_server.resolve_mlflow_uri(store.root)
    tracking = Tracking(uri, f"file://{store.root}/mlflow/artifacts")
    (store.root / "mlflow").mkdir(parents=True, exist_ok=True)
    tracking.join(order.mlflow_run)
    return tracking
