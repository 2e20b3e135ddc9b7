"""A new dump is added to what a model has seen, and the model goes on from there.

`graph` is the way of one dump on one page. Only the new dump is read: its corpus
leaves out what the earlier corpora have, the first round's vocabulary is kept, pre-training goes on
from the base's weights on new sequences and a share of old ones (contrastive adaptation on the new
titles), and the study asks the test sets
of the first dump, which stay held out for ever.
"""

from functools import partial
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Addition, AdditionParameters
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps import increments, labels
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.prefect_tasks import call_with_retries
from amazon_electra.flows.runner.stage_runner import Plan, StageMaker
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.runs.missed_runs import catch_up_once
from amazon_electra.flows.servers import mlflow_server
from amazon_electra.flows.stages import arms, report
from amazon_electra.flows.stages.cells import make_cells
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.stages.model import build_model_stages, make_models
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.registry import list_registries


@flow(name="add-dump", flow_run_name=name_run)
@catch_up_once
@take_fields(Addition)
def add_dump(**given: Any) -> dict[str, Any]:
    """Add a new dump to what a model has seen, go on with its pre-training, and measure what that
    was worth.
    """
    form = Addition(**given)
    return run_graph(graph, prepare_addition(form, Plan(Store(form.store))))


def prepare_addition(form: Addition, plan: Plan) -> AdditionParameters:
    """Return what the graph is asked to do: what the form says, and for the rest what the base
    has.
    """
    form = call_with_retries("base", partial(settle_base, form, plan.store))
    base = increments.resolve_base(form.increment.base, plan)
    return increments.inherit_settings(form, base)


def graph(p: AdditionParameters, make: StageMaker) -> Stage:
    """Base → dump → corpus → (vocabulary fit → shards →) training → fine-tuning → report."""
    arms.check_parameters(p)
    base = increments.resolve_base(p.increment.base, make)
    p = labels.settle_tasks_of_corpus(p, base.rounds[0].corpus, make.store)
    grown = increments.add_round(p, base, make)  # dump → … → pre-training
    if grown is base:
        return base.encoder
    added, encoder = grown.rounds[-1], grown.encoder

    compared = encoder, base.encoder, base.origin
    cells = list(arms.list_cells(p, make.store, base.rounds[0].corpus, *compared))
    make_cells(make, cells, p.finetuning.at_once)

    made = [*filter(None, [base.origin]), *added.stages]
    stages = build_model_stages(cells, base.rounds[0].corpus, p.finetuning)
    models = make_models(make, stages)
    command = report.format_command(p.form)
    about = command, p.recipe, added.dump, made, encoder, cells, (), models
    return make(report.build_report_stage(*about))


def settle_base(form: Addition, store: Store) -> Addition:
    """Return the form with the base by its fingerprint: `last` and `champion` mean others by the
    time a suspended run goes on.
    """
    memory = store.root / "runs" / str(flow_run.id or "") / "base"
    if flow_run.id and memory.exists():
        form = form.replace_base(memory.read_text(encoding="utf-8"))
    else:
        form = find_base(form, store)
        if flow_run.id:
            memory.parent.mkdir(parents=True, exist_ok=True)
            memory.write_text(form.increment.base, encoding="utf-8")
    find_run_logger().info("%s is added to %s", " ".join(form.dump.paths), form.increment.base)
    return form


def find_base(form: Addition, store: Store) -> Addition:
    """Return the form with the fingerprint of the model that its base means now."""
    champion = find_champions_encoder(store) if form.increment.base == "champion" else ""
    new = build_dump_stage(form.dump, store)
    return form.replace_base(increments.find_base(form.increment.base, new, store, champion))


def find_champions_encoder(store: Store) -> str:
    """Return the fingerprint of the encoder that the champions have, empty where none has one;
    UserError where they have several.
    """
    every = list_registries(mlflow_server.resolve_mlflow_uri(store.root))
    encoders = {
        registry.task: registry.get_by_alias("champion").get("encoder") for registry in every
    }
    found = {encoder for encoder in encoders.values() if encoder}
    if len(found) > 1:
        named = ", ".join(f"{task}: {one}" for task, one in encoders.items() if one)
        raise UserError(
            f"champions have several encoders; name the one that is meant ({named})",
            "increment.base",
            "champion",
        )
    return found.pop() if found else ""


def choose_newest_base(form: Addition, store: Store) -> Addition:
    """Return the form with the newest model that goes back to its base as its base: so dumps that
    are added in turn make one chain.
    """
    base = find_base(form, store)
    newest = increments.find_newest_model(store, base.increment.base)
    return find_base(form.replace_base(newest), store)
