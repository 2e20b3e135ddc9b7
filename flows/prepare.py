"""The data of a run, from the dump to the shards, on one page.

With `engine.prepare` the flow `domain-adaptation`, on a host with an accelerator, starts the
deployment `prepare` on a host of the pool `cpu`, waits for it, and finds its stages in the store
that both share.
"""

import json
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.runtime import flow_run
from prefect.states import Cancelling, Completed

from amazon_electra.beam_jobs.core.errors import JobFailed
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.plan import RunPlan, plan_run
from amazon_electra.flows.policy import Counts, Decision, decide
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.runs.graph_run import check_engine, follow_run, name_run
from amazon_electra.flows.servers import stock
from amazon_electra.flows.stages.cells import measure_length
from amazon_electra.flows.stages.corpus import build_corpus_stage, build_shards_stages
from amazon_electra.flows.stages.origin import warn_of_languages
from amazon_electra.flows.store.stage import Group, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.ui.artifacts import PrefectRun
from amazon_electra.model.tracking.mlflow_run import Tracking


@dataclass(frozen=True)
class Data:
    """What a run trains on."""

    corpus: Stage
    counts: Counts
    decided: Decision
    length: int | None
    """Tokens that networks read of a text; None: as the recipe says."""
    reading: str
    """Clause about that."""
    made: Sequence[Stage]
    shards: Stage | None = None
    dev: Stage | None = None


def make_data(run: RunPlan) -> Generator[Group, None, Data]:
    """Dump → corpus → (vocabulary → shards)."""
    p, store, dump, origin = run.form, run.store, run.dump, run.origin
    corpus = build_corpus_stage(p, dump, store)
    made = [dump, *([origin] if origin else []), corpus]
    for stage in made:
        yield Group.of(stage)
    tasks = p.finetuning.tasks  # from here on the corpus decides, once it is made
    counts = labels.count_corpus(tasks, corpus, store)
    counts = counts or labels.estimate_counts(tasks, p.dump, p.corpus, run.previews)
    decided = decide(p, counts)
    run.note(*decided.reasons)
    length = measure_length(p.finetuning, p.recipe, store, corpus, origin)
    if origin:
        run.note(length[1], warn_of_languages(store, origin, corpus))
    data = Data(corpus, counts, decided, *length, made)
    if decided.adaptation != "text":
        return data
    vocabulary, shards, dev = build_shards_stages(p, corpus, origin, store)
    for stage in (vocabulary, shards, dev):
        yield Group.of(stage)
    return Data(corpus, counts, decided, *length, [*made, vocabulary, shards, dev], shards, dev)


@flow(name="prepare", flow_run_name=name_run)
@take_fields(Parameters)
def prepare(**form: Any) -> Any:
    """Make the data of a run; its state's message says which dump it is, and which tasks it has."""
    p = Parameters(**form)
    store = Store(p.store)
    check_engine(p)
    store.check_access()
    plan = call_with_retries("plan", partial(plan_run, p, store))
    tracking = Tracking(stock.resolve_mlflow_uri(store.root))  # of no stage of data
    runner = StageRunner(store, [PrefectRun()], tracking)
    with follow_run(store, str(flow_run.id), flow_run.name or ""):
        PrefectStageMaker(runner).make_graph(make_data(plan), plan.notes)
    prepared = {"dump": plan.dump.path, "tasks": plan.form.finetuning.tasks}
    return Completed(message=json.dumps(prepared))


def have_prepared(p: Parameters, store: Store) -> RunPlan:
    """Have the deployment `prepare` make the data of a run; return the plan of the run. JobFailed
    where its run did not complete.
    """
    run: Any = run_deployment("prepare/prepare", parameters=p.model_dump(mode="json"), timeout=0)
    with get_client(sync_client=True) as client:
        try:
            while not run.state.is_final():
                time.sleep(2.0)
                run = client.read_flow_run(run.id)
        except BaseException:
            client.set_flow_run_state(run.id, Cancelling())
            raise
    if not run.state.is_completed():
        raise JobFailed(f"{run.name} is {run.state.name}: {run.state.message}")
    return plan_run(p, store, json.loads(run.state.message))
