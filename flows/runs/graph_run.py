"""Runs a graph in the Prefect flow that calls: names and follows the run, makes its stages, tracks
it in MLflow, publishes the report, and lets the model become champion.
"""

import contextvars
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import Abort, Pause, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.plan import RunPlan, list_lines, plan_run, planned
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from amazon_electra.flows.runner.stage_runner import StageRunner, listeners
from amazon_electra.flows.runs.champion import find_champion, register_models
from amazon_electra.flows.servers import stock
from amazon_electra.flows.servers.access import PAUSED_EVENT, find_running_servers
from amazon_electra.flows.stages.dump import name_dump
from amazon_electra.flows.store.flatten import flatten_parameters
from amazon_electra.flows.store.stage import Groups, Stage, list_stages
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import mark_run, save_registered
from amazon_electra.flows.ui import artifacts
from amazon_electra.model.tracking.mlflow_run import FLOW_RUN, Tracking
from amazon_electra.model.tracking.registry import list_registries

PAGE = "report.html"
ASK_SECONDS = 10.0  # with the grace of a trainer less than the 30 s for a cancelled run
FindChampion = Callable[[str], Stage | None] | None


def name_run() -> str:
    """Return dump, flow and date, or study and date; of parameters that may be dictionaries yet."""
    if " · " in (flow_run.name or ""):  # a run that goes on
        return str(flow_run.name)
    study, dump = (dict(flow_run.parameters.get(name) or {}) for name in ("study", "dump"))
    if file := study.get("file"):
        what = f"study {Path(file).stem}"
    else:
        what = f"{name_dump(dump.get('paths') or ['dump'])} · {flow_run.flow_name}"
    return f"{what} · {flow_run.scheduled_start_time:%Y-%m-%d %H:%M}"


@contextmanager
def follow_run(store: Store, run: str, name: str = "") -> Iterator[None]:
    """Mark a run while the block lasts. Once it is cancelled, raise Prefect's Abort, which leaves
    its state as it is: Prefect's runner hears nothing after its server was away, `run` has none.
    """
    over, cancelled = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(ASK_SECONDS):
            with suppress(Exception), get_client(sync_client=True) as client:  # away: ask again
                state = client.read_flow_run(UUID(run)).state
                if state and state.is_cancelling() and not over.is_set():
                    ended: Any = Cancelled(message="the run ended itself")
                    client.set_flow_run_state(UUID(run), ended)
                    cancelled.set()
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

    watcher = threading.Thread(target=contextvars.copy_context().run, args=[watch], daemon=True)
    try:
        with mark_run(store, run, name):
            watcher.start()
            try:
                yield
            finally:
                over.set()
    except TerminationSignal:
        if cancelled.is_set():
            raise Abort(f"the run {run} was cancelled") from None
        raise


def check_engine(parameters: Parameters) -> None:
    """Raise UserError where the engine's workers could not see the data."""
    if parameters.engine.kind == "dataflow":
        for path in (parameters.store, *parameters.dump.paths, *parameters.corpus.withhold):
            if not is_remote(path):
                why = f"its workers do not see {path}; put it into gs:// and give its address"
                raise UserError(why, "engine.kind", "dataflow")


def run_plan(
    p: Parameters, graph: Callable[[RunPlan, FindChampion], Groups], known: RunPlan | None = None
) -> dict[str, Any]:
    """Plan a run, unless whoever calls has planned it, and make it."""
    plan = known or planned.get() or call_with_retries("plan", partial(plan_run, p, Store(p.store)))
    return run_graph(partial(graph, plan), plan.form, plan.store, plan.dump, plan.notes, plan.begun)


def run_graph(
    graph: Callable[[FindChampion], Groups],
    parameters: Parameters,
    store: Store,
    dump: Stage | None,
    notes: Sequence[str] = (),
    begun: StageRunner | None = None,
) -> dict[str, Any]:
    """Make every stage of a graph, the report last; return `list_results`, and what
    failed without ending the run. `begun` makes the first stages already.
    """
    check_engine(parameters)
    store.check_access()
    run, name, wish = str(flow_run.id or ""), flow_run.name or "run", parameters.promotion
    tags = {FLOW_RUN: run, "amazon_electra.store": store.address}
    if page := flow_run.ui_url:
        tags["mlflow.note.content"] = f"[The run in Prefect]({page})"
    uri = stock.resolve_mlflow_uri(store.root)
    tracking = Tracking(uri, stock.locate_artifacts(store.root))
    if wish.mode != "off":  # fails before anything is made
        call_with_retries("champion", partial(list_registries, uri))
    find = cache(partial(find_champion, wish, store, uri))  # once the models are made
    runner = begun or StageRunner(store)
    runner.tracking, runner.tags = tracking, tags
    answers = artifacts.Answers(runner)
    runner.listeners = [artifacts.PrefectRun(), *listeners.get(), answers]
    # a worker of a pool has its host's accelerator, a server for one run frees none
    context = FlowRunContext.get()
    is_in_pool = context and context.flow_run and context.flow_run.work_pool_name
    maker = PrefectStageMaker(runner, not is_in_pool and bool(find_running_servers(store.root)))
    tracking.start(name, flatten_parameters(parameters.model_dump()), tags)
    status = "FAILED"
    try:
        with follow_run(store, run, name):
            lines = list_lines(list_stages(graph(None), store), notes)
            page = "\n".join(["```", *lines, "```"])
            about = "What is to do"
            artifacts.publish(create_markdown_artifact, "plan", markdown=page, description=about)
            runner.notify("on_line", lines[-1])
            last = maker.make_graph(graph(find), notes)
            publish_report(store.fetch(last), tracking)
            became, is_complete = register_models(wish, maker, find, last, tracking)
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
            # the last heartbeat was before
            emit_event(PAUSED_EVENT, {"prefect.resource.id": f"prefect.flow-run.{run}"})
    if tracking.is_sent and is_complete and dump and not maker.failed:
        save_registered(store, last, dump, wish.model_dump(), became)
    failed = {what: str(why) for what, why in maker.failed.items()}
    more = {"registered": became, "failed": failed, "stopped": maker.is_stopped}
    return list_results(store, maker.stages, last) | more


def publish_report(folder: Path, tracking: Tracking) -> None:
    """Show the report in Prefect, and log it to MLflow."""
    for name in ("report.md", PAGE, "report.json"):
        if (folder / name).exists():
            tracking.log_folder(folder / name, "")
    if (report := folder / "report.md").exists():
        text, about = report.read_text(encoding="utf-8"), "What the adaptation was worth"
        artifacts.publish(create_markdown_artifact, "report", markdown=text, description=about)
    if (folder / PAGE).exists() and (page := tracking.build_address()):
        about = f"The report as a page, in MLflow; also {folder / PAGE}"
        link = f"{page}/artifacts/{PAGE}"
        artifacts.publish(create_link_artifact, "report-page", link=link, description=about)


def list_results(store: Store, stages: Sequence[Stage], last: Stage) -> dict[str, Any]:
    """Return the paths of what a person looks at next."""
    folder = store.fetch(last)
    kinds = "model", "unlabelled"
    models = {s.config.task: str(store.fetch(s)) for s in stages if s.name in kinds}
    first = {"model": next(iter(models.values()))} if models else {}
    report = {"report": str(folder / PAGE)} if (folder / PAGE).exists() else {}
    return {**report, **first, "models": models, "folder": str(folder)}
