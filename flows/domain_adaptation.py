"""START HERE: the whole graph on one page.

`graph` names every stage and what it is made of; each is a folder in the store, made by a job of
its own. The flow below goes through it with Prefect: one task per stage, retried where that may
help, shown in the UI, mirrored to MLflow. Stages the store holds already are not made again, so a
repeated run does nothing and an interrupted one continues.
"""

from functools import partial
from typing import Any

from prefect import flow

from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.processes import Terminated, allow_jobs
from amazon_electra.flows.runner.stage_runner import StageMaker
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.runs.missed_runs import catch_up_once
from amazon_electra.flows.stages import arms, report
from amazon_electra.flows.stages.cells import Cell, keep_complete, list_chains, make_cells
from amazon_electra.flows.stages.contrastive_adaptation import (
    adapts_by_contrast,
    build_contrastive_stage,
)
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import list_dump
from amazon_electra.flows.stages.model import build_model_stages, make_models
from amazon_electra.flows.stages.origin import make_origin, make_other_origins, warn_of_languages
from amazon_electra.flows.stages.pretraining import (
    build_pretraining_stage,
    is_worth_adapting,
    shares_cores,
)
from amazon_electra.flows.stages.shards import (
    build_dev_stage,
    build_shards_stage,
    choose_sequence_length,
)
from amazon_electra.flows.stages.text_length import find_length
from amazon_electra.flows.stages.vocabulary import build_vocabulary_stage
from amazon_electra.flows.store.stage import Resources, Stage


def graph(p: Parameters, make: StageMaker) -> Stage:
    """Dump → corpus → (vocabulary → shards →) pre-training → arms × tasks → model, report."""
    arms.check_split(p.corpus.split)
    dump = make(list_dump(p.dump, make))
    origin = make_origin(p.pretraining, make, dump)  # if it starts from a published encoder
    others = make_other_origins(p.pretraining, make)
    length = choose_sequence_length(p.shards, p.recipe, origin, make.store)
    p = labels.resolve_tasks(p, dump, make)
    corpus = make(build_corpus_stage(p.corpus, p.dump, p.engine, dump, make.store))
    labels.check_corpus(p.finetuning.tasks, corpus, make.store)
    asked, p = p, arms.choose_arms(p, corpus, make.store)
    if origin:
        warn_of_languages(make.store, origin, corpus)
    made = [dump, corpus, *([origin] if origin else []), *others]
    at_once = p.finetuning.at_once
    if not p.trains_encoder:
        encoder: Stage = origin or corpus
    elif origin and adapts_by_contrast(p, corpus, make.store):
        encoder = build_contrastive_stage(p.pretraining, corpus, origin, beside=at_once - 1)
        made.append(encoder)
    elif origin and not is_worth_adapting(p, corpus, make.store):
        encoder = origin
    else:
        vocabulary = make(build_vocabulary_stage(p.vocabulary, p.recipe, corpus, origin))
        engine = Resources(engine=p.engine, workers=p.corpus.workers)
        shards = make(build_shards_stage(length, corpus, vocabulary, engine))
        dev = make(build_dev_stage(length, corpus, vocabulary))
        encoder = build_pretraining_stage(p, shards, origin=origin, dev=dev, beside=at_once - 1)
        made += [vocabulary, shards, dev, encoder]

    if read := find_length(p.finetuning, p.recipe, make.store, corpus, origin):
        find_run_logger().info(read.describe())
    list_cells = partial(
        arms.list_cells, p, make.store, corpus, encoder, origin=origin, others=others
    )
    cells, curve = list(list_cells()), list[Cell]()
    is_new = encoder not in (origin, corpus)
    without = [cell for cell in cells if not (is_new and cell.is_made_of(encoder))]
    try:
        # The first answers are those of arms that take seconds.
        first = [cell for cell in without if cell.is_cheap]
        if first:
            make.make_side_by_side(list_chains(first), at_once)
        # What else needs no new encoder is made beside its training, the rest after it.
        waiting = [cell for cell in without if not (cell.parts or cell.is_cheap)]
        early = waiting if shares_cores(p.pretraining.device, p.engine) else []
        if chains := [*([(encoder,)] if is_new else []), *list_chains(early)]:
            make.make_side_by_side(chains, at_once)
        late = [cell for cell in cells if not cell.is_among([*first, *early])]
        curve = list(list_cells(is_curve=True))
        make_cells(make, [*late, *curve], at_once)
    except Terminated:
        raise
    except KeyboardInterrupt:  # the best so far becomes the model
        cells, curve = keep_complete(cells, make.store), keep_complete(curve, make.store)
        if not cells:
            raise
        allow_jobs()
        made = [stage for stage in made if make.store.manifest(stage)]
        encoder = encoder if encoder in made else origin or corpus
        find_run_logger().warning(
            "stopped: the model and the report are made of what is complete, %s; continue with: %s",
            "; ".join(dict.fromkeys(cell.arm for cell in cells)),
            report.format_command(asked),
        )

    models = make_models(make, build_model_stages(cells, corpus, p.finetuning.target_accuracy))
    command = report.format_command(asked)
    about = command, p.recipe, dump, made, encoder, cells, curve, models
    return make(report.build_report_stage(*about))


@flow(name="domain-adaptation", flow_run_name=name_run)
@catch_up_once
@take_fields(Parameters)
def domain_adaptation(**form: Any) -> dict[str, Any]:
    """Adapt a language model to a dump of reviews and measure what that was worth.

    Reads the dump, learns a vocabulary, pre-trains ELECTRA, fine-tunes it and an untrained encoder
    on the dump's own labels, and reports the difference with its confidence interval. Whatever the
    store holds already is not made again.
    """
    return run_graph(graph, Parameters(**form))
