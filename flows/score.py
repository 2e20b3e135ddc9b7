"""The champion of each task over a dump: a row with labels and probabilities for every record."""

from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow

from amazon_electra.beam_jobs.config import SCORING_TOTALS
from amazon_electra.beam_jobs.core import storage
from amazon_electra.flows.configuration.form import Parameters, Scoring
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.prefect_tasks import call_with_retries
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.stages.dump import ListedDump, build_dump_stage
from amazon_electra.flows.stages.scores import (
    RegisteredModel,
    copy_scores,
    describe_drift,
    describe_models,
    find_models,
    find_scores,
    graph,
    leave_out_files,
    list_parts,
)
from amazon_electra.flows.store.store import Store

planned_scoring: ContextVar[tuple[list[RegisteredModel], ListedDump] | None] = ContextVar(
    "planned_scoring", default=None
)
"""The models and the dump of the scoring that this context starts: a flow has only its form."""


@flow(name="score", flow_run_name=name_run)
@take_fields(Scoring)
def score(**given: Any) -> dict[str, Any]:
    """Label every record of a dump with the champion of each task, or of one, or else the newest
    model; files that these have scored are left out.
    """
    form = Scoring(**given)
    store = Store(form.store)
    models, dump = planned_scoring.get() or (
        call_with_retries("model", partial(find_models, form, store)),
        call_with_retries("listing", partial(build_dump_stage, form.dump, store)),
    )
    new = leave_out_files(dump, find_scores(models, form, store))
    if left_out := dump.result["files"] - new.result["files"]:
        about = (
            f"{describe_models(models)} scored {left_out} of {dump.result['files']} files before"
        )
        find_run_logger().info("%s: their scores are copied", about)
    parameters = Parameters(dump=form.dump, store=form.store)
    run_graph(lambda _: graph(models, form, dump, new), parameters, store, dump)
    scores = find_scores(models, form, store)
    output = form.output
    if not storage.is_remote(output):
        output = str(Path(store.root, Path(output).expanduser()))
    names = copy_scores(dump, scores, output, store)
    results = [part for _, part in list_parts(dump, scores)]
    storage.write_json(storage.join_path(output, SCORING_TOTALS), {"files": results})
    find_run_logger().info("drift: %s", describe_drift(results) or "not known")
    return {
        "folder": output,
        "files": names,
        "results": results,
        "models": describe_models(models),
    }
