"""The champion of each task over a dump: a row with labels and probabilities for every record."""

import shutil
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
from amazon_electra.flows.stages import scores as scoring
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.stage import Group
from amazon_electra.flows.store.store import Store


@flow(name="score", flow_run_name=name_run)
@take_fields(Scoring)
def score(**given: Any) -> dict[str, Any]:
    """Label every record of a dump with the champion of each task, or of one, or else the newest
    model.
    """
    form = Scoring(**given)
    store = Store(form.store)
    models = call_with_retries("model", partial(scoring.find_models, form, store))
    dump = call_with_retries("listing", partial(build_dump_stage, form.dump, store))
    stage = scoring.build_scores_stage(models, form, dump)
    parameters = Parameters(dump=form.dump, store=form.store)
    made = run_graph(lambda _: (Group.of(one) for one in (dump, stage)), parameters, store, dump)
    output = form.output
    if not storage.is_remote(output):
        output = str(Path(store.root, Path(output).expanduser()))
    results = (store.manifest(stage) or {"result": {"files": []}})["result"]["files"]
    names = [part["scores"] for part in results]
    for name in names:
        with storage.atomic_path(storage.join_path(output, name)) as path:
            shutil.copyfile(Path(made["folder"], name), path)
    storage.write_json(storage.join_path(output, SCORING_TOTALS), {"files": results})
    find_run_logger().info("drift: %s", scoring.describe_drift(results) or "not known")
    shown = ", ".join(f"{one.task} version {one.version} ({one.role})" for one in models)
    return {"folder": output, "files": names, "results": results, "models": shown}
