"""What a worker of a pool does for a run elsewhere: it makes stages of that run's graph.

The run starts the deployment of the pool and waits. Nobody starts this by hand. The run that waits
reports failures: these call no webhook.
"""

import os
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.pools.maker import StageRequest, build_failed_state
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.runs.follow import follow_run
from amazon_electra.flows.servers import mlflow_server
from amazon_electra.flows.servers.access import restrict_store
from amazon_electra.flows.servers.settings import PART_FLOW
from amazon_electra.flows.stages.external import check_place
from amazon_electra.flows.stages.pretraining import check_device
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.ui.artifacts import PrefectRun
from amazon_electra.model.tracking.mlflow_run import Tracking


@flow(name=PART_FLOW, flow_run_name="{title}")
@take_fields(StageRequest)
def run_stage(**given: Any) -> Any:
    """Make stages of another run's graph; return their folders. Where there are none, try whether
    this host could make some.
    """
    try:
        return answer_request(StageRequest(**given))
    except Exception as error:
        find_run_logger().exception("the stages could not be made")
        return build_failed_state(error)


def answer_request(request: StageRequest) -> list[str]:
    """Do what a run asks for."""
    if not request.code:
        raise UserError("run-stage is started by runs with engine.placement=pools, not by hand")
    store = Store(request.store)
    restrict_store(store.root)
    store.place.check_access()
    (store.root / "runs" / str(flow_run.id)).mkdir(parents=True, exist_ok=True)
    with follow_run(store, str(flow_run.id), flow_run.name or ""):
        stages = request.read_stages()
        if request.device and not stages:
            check_device(request.device)
        for stage in stages:
            check_sources(stage, store)
        if stages:
            make_stages(request, stages, store)
    return request.make


def make_stages(request: StageRequest, stages: list[Stage], store: Store) -> None:
    """Make stages one after the other, with their curves in the MLflow run that waits."""
    uri: Any = request.mlflow  # at this host's address of the server, where it has one
    if os.environ.get("MLFLOW_TRACKING_URI") or not uri.startswith("http"):
        uri = mlflow_server.resolve_mlflow_uri(store.root)
    (store.root / "mlflow").mkdir(parents=True, exist_ok=True)
    tracking = Tracking(uri, mlflow_server.locate_artifacts(store.root))
    status = "KILLED"
    is_tracked = any(stage.tracked for stage in stages)
    if is_tracked:  # to load MLflow takes seconds
        tracking.join(request.mlflow_run)
    try:
        runner = StageRunner(store, [PrefectRun()], tracking, request.tags)
        maker = PrefectStageMaker(runner, takes_accelerator=False)
        maker.make_chains([stages], 1)
        status = "FINISHED"
    finally:
        if is_tracked:
            tracking.close(status)


def check_sources(stage: Stage, store: Store) -> None:
    """Raise UserError where data or a model from elsewhere is not on this host as the run knows
    it.
    """
    for source in stage.inputs.values():
        if source.name == "external":
            check_place(source, store)
