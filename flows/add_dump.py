"""A new dump is added to what a model has seen, and the model goes on from there.

`graph` is the way of one dump on one page. Only the new dump is read: its corpus
leaves out what the earlier corpora have, the first round's vocabulary is kept, and pre-training
goes on from the base's weights on new sequences and a share of old ones (contrastive adaptation on
the new titles). Tasks train on the labels of all dumps, and are tested on the test reviews of all;
no review is in both.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Addition, AdditionParameters
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps import increments, labels
from amazon_electra.flows.dumps.increments import Round
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.prefect_tasks import call_with_retries
from amazon_electra.flows.runner.stage_runner import Plan, StageMaker
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.runs.missed_runs import catch_up_once
from amazon_electra.flows.servers import mlflow_server
from amazon_electra.flows.stages import arms, report
from amazon_electra.flows.stages.cells import make_cells
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import build_dump_stage, list_dump
from amazon_electra.flows.stages.model import build_model_stages, make_models
from amazon_electra.flows.stages.text_length import find_length
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
    """Base → dump → corpus → labels → (shards →) training → fine-tuning → report."""
    arms.check_split(p.corpus.split)
    base = increments.resolve_base(p.increment.base, make)
    dump = make(list_dump(p.dump, make))
    p = labels.inherit_labels(p, base.rounds[0].corpus, dump, make)
    earlier = [one.corpus for one in base.rounds]
    corpus = make(build_corpus_stage(p.corpus, p.dump, p.engine, dump, make.store, earlier))
    made = make.store.manifest(corpus)
    if made and not made["result"]["kept"]:
        find_run_logger().warning(
            "nothing in %s is new to the model %s", dump.result["name"], p.increment.base
        )
        return base.encoder
    kept = increments.explain_kept_encoder(base, corpus, make.store)
    added = Round(dump, corpus, base.encoder, is_kept=True)
    joined = increments.join_labels(base, added if kept else replace(added, is_kept=False), make)
    is_joined = make.store.manifest(joined) is not None
    p = labels.settle_tasks_of_corpus(p, joined if is_joined else earlier[0], make.store)
    if kept:
        find_run_logger().info("%s gives its labels alone: %s", dump.result["name"], kept)
        grown = replace(base, rounds=(*base.rounds, added))
    else:
        grown = increments.add_round(p, base, dump, corpus, make)  # … → pre-training
    added, encoder = grown.rounds[-1], grown.encoder

    if length := find_length(p.finetuning, p.recipe, make.store, joined, base.origin):
        find_run_logger().info(length.describe())
    compared = encoder, None if kept else base.encoder, base.origin
    cells = list(arms.list_cells(p, make.store, joined, *compared))
    make_cells(make, cells, p.finetuning.at_once)

    stages = [*filter(None, [base.origin]), *added.stages, joined]
    models = make_models(make, build_model_stages(cells, joined, p.finetuning))
    command = report.format_command(p.form)
    about = command, p.recipe, added.dump, stages, encoder, cells, (), models
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
    champion = find_champions_base(store) if form.increment.base == "champion" else ""
    new = build_dump_stage(form.dump, store)
    return form.replace_base(increments.find_base(form.increment.base, new, store, champion))


def find_champions_base(store: Store) -> str:
    """Return the fingerprint of the model that the champions' runs have made, as one that a dump is
    added to; empty where there is no champion, UserError where they have several.
    """
    found = {}
    for registry in list_registries(mlflow_server.resolve_mlflow_uri(store.root)):
        tags = registry.get_by_alias("champion")
        made = store.read_manifest("report", tags.get("report", ""))
        model = made and increments.find_model(store, made)
        if base := model["fingerprint"] if model else tags.get("encoder"):
            found[registry.task] = base
    if len(set(found.values())) > 1:
        named = ", ".join(f"{task}: {one}" for task, one in found.items())
        raise UserError(
            f"champions are of several runs; name the model that is meant ({named})",
            "increment.base",
            "champion",
        )
    return next(iter(found.values()), "")


def choose_newest_base(form: Addition, store: Store) -> Addition:
    """Return the form with the newest model that goes back to its base as its base: so dumps that
    are added in turn make one chain.
    """
    base = find_base(form, store)
    newest = increments.find_newest_model(store, base.increment.base)
    return find_base(form.replace_base(newest), store)
