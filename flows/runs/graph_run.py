"""Runs a graph in the Prefect flow that calls: makes its stages, tracks the run in MLflow,
publishes the results, and lets the model become champion.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from prefect.events import emit_event
from prefect.exceptions import Pause
from prefect.runtime import flow_run

from flows.configuration.form import Parameters
from flows.runner.pools.maker import PoolStageMaker
from flows.runner.prefect_tasks import PrefectStageMaker
from flows.runner.run_log import find_run_logger
from flows.runner.stage_runner import (
    Plan,
    ProgressListener,
    StageMaker,
    StageRunner,
    flatten_parameters,
)
from flows.runs.champion import Champion, ChampionLookup, find_champion, register_model
from flows.runs.engine_check import check_engine
from flows.runs.lost_runs import crash_lost_runs, follow_run
from flows.runs.run_results import publish_results
from flows.runs.small_budget import find_small_budget
from flows.servers import mlflow_server
from flows.servers.access import restrict_store
from flows.servers.settings import PAUSED_EVENT
from flows.stages import dump, pretraining
from flows.store.store import Stage, Store
from flows.ui import artifacts, plan_page
from model.tracking.mlflow_run import FLOW_RUN, Tracking

Form = TypeVar("Form", bound=Parameters)
LISTENERS: list[ProgressListener] = []
"""Who is told besides Prefect: the terminal of `amazon-electra run`."""


def run_graph(
    graph: Callable[[Form, StageMaker], Stage],
    parameters: Form,
    reads_dump: bool = True,
) -> dict[str, Any]:
    """Make every stage of the graph, the last of which is the report; return the paths of what a
    person looks at next. `reads_dump`: the dump is the dataset of the run in MLflow.
    """
    if parameters.engine.placement != "pools":
        pretraining.check_device(parameters.pretraining.device)
    check_engine(parameters)
    store = Store(parameters.store)
    restrict_store(store.root)
    store.place.check_access()
    tags = tag_run(store)
    uri = mlflow_server.resolve_mlflow_uri(store.root)
    tracking = Tracking(uri, mlflow_server.choose_artifact_place(uri, store))
    (store.root / "mlflow").mkdir(parents=True, exist_ok=True)
    (store.root / "runs" / str(flow_run.id)).mkdir(parents=True, exist_ok=True)
    crash_lost_runs(store)
    find = partial(find_champion, parameters, store, tracking.uri)
    champion = find()  # a registry that is away is told before anything is made
    lookup = ChampionLookup(find)
    runner = StageRunner(store, [artifacts.PrefectRun(), *LISTENERS], tracking, tags)
    maker = create_maker(parameters, runner, lookup.find_encoder, MlflowLink(tracking).publish)
    values = flatten_parameters(parameters.model_dump())
    dataset = describe_dataset(parameters, maker) if reads_dump else None
    tracking.start(flow_run.name or "run", values, tags, dataset)
    status = "FAILED"
    try:
        with follow_run(store, str(flow_run.id), flow_run.name or ""):
            planned = show_plan(graph, parameters, champion, runner)
            if isinstance(maker, PoolStageMaker):
                maker.check_pools(planned)
            last = graph(parameters, maker)
            summary = publish_results(store, maker.stages, last, tracking)
            register_model(parameters, maker, lookup.champion, last, tracking)
            status = "FINISHED"
    except Pause:
        status = "SCHEDULED"
        raise
    except BaseException as stopped:
        status = "FAILED" if isinstance(stopped, Exception) else "KILLED"
        raise
    finally:
        tracking.finish(status)
        if status == "SCHEDULED":
            # The engine's heartbeat goes on until here: no other one is to be waited for.
            emit_event(PAUSED_EVENT, {"prefect.resource.id": f"prefect.flow-run.{flow_run.id}"})
    return summary


def create_maker(
    parameters: Parameters,
    runner: StageRunner,
    find_champion: Callable[[], Stage | None],
    after_stage: Callable[[], None],
) -> PrefectStageMaker:
    """Return what makes the stages: this process tree, or workers of pools."""
    engine = parameters.engine
    if engine.placement == "pools":
        device = parameters.pretraining.device
        return PoolStageMaker(runner, engine.training_pool, find_champion, after_stage, device)
    return PrefectStageMaker(runner, find_champion, after_stage)


def show_plan(
    graph: Callable[[Form, StageMaker], Stage],
    parameters: Form,
    champion: Champion,
    runner: StageRunner,
) -> list[Stage]:
    """Show what the graph is going to make; return the stages that are not complete, as far as they
    are known.

    It cannot stop a run: what is wrong with the graph is told, and tried again, where it is made.
    """
    plan = Plan(runner.store, champion.encoder)
    try:
        graph(parameters, plan)
        line, page = plan_page.format_total(plan), plan_page.render_plan(plan)
        warning = find_small_budget(plan)
    except Exception as unknown:
        find_run_logger().warning("what this makes is not known: %s", unknown)
    else:
        runner.show_plan(line, page)
        if warning:
            find_run_logger().warning(warning)
    return [stage for stage, is_complete in plan.stages if not is_complete]


def tag_run(store: Store) -> dict[str, str]:
    """Return the tags by which MLflow's runs name the flow run and the store they are of."""
    tags = {FLOW_RUN: str(flow_run.id or ""), "amazon_electra.store": store.address}
    if page := flow_run.ui_url:
        tags |= {"prefect.flow_run": page, "mlflow.note.content": f"[The run in Prefect]({page})"}
    return tags


class MlflowLink:
    """Link the run in Prefect to the run in MLflow, once there is one: nothing waits for it."""

    def __init__(self, tracking: Tracking):
        self._tracking, self._is_published = tracking, False

    def publish(self) -> None:
        address = self._tracking.build_address()
        if address and not self._is_published:
            artifacts.publish_link(
                address, "mlflow-run", "The run in MLflow: curves, system metrics, artifacts"
            )
            self._is_published = True


def describe_dataset(parameters: Parameters, maker: StageMaker) -> dict[str, str]:
    """Return name, digest and source of the dump, as MLflow describes a dataset."""
    reviews = dump.list_dump(parameters.dump, maker)
    return {
        "name": reviews.result["name"],
        "digest": reviews.fingerprint,
        "source": " ".join(reviews.result["paths"]),
    }
