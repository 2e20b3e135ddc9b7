"""START HERE: the whole graph on one page.

`graph` names every stage and what it is made of; each is a folder in the store, made by a job of
its own. The flow below goes through it with Prefect: one task per stage, retried where that may
help, shown in the UI, mirrored to MLflow. Stages the store holds already are not made again, so a
repeated run does nothing and an interrupted one continues.
"""

from functools import partial
from typing import Any

from prefect import flow

from flows.configuration.parameters import Parameters
from flows.configuration.sections import take_fields
from flows.dumps import labels
from flows.runner.failures import FAILURE_HOOKS
from flows.runner.stage_runner import StageMaker
from flows.runs.graph_run import run_graph
from flows.runs.run_names import name_run_by_preset
from flows.stages import arms, corpus, pretraining, report, shards, vocabulary
from flows.stages.dump import list_dump
from flows.stages.origin import make_origin
from flows.store.store import Stage


def graph(p: Parameters, make: StageMaker) -> Stage:
    """Dump → corpus → vocabulary → shards → pre-training → arms × tasks × seeds → report."""
    arms.check_parameters(p)
    origin = make_origin(p, make)
    reviews = make(list_dump(p.dump, make))
    labels.check_dump(p.finetuning.tasks, p.dump, reviews, make)
    sentences = make(corpus.build_corpus_stage(p, reviews, make.store))
    labels.check_corpus(p.finetuning.tasks, sentences, make.store)
    words = make(vocabulary.build_vocabulary_stage(p, sentences, origin))
    sequences = make(shards.build_shards_stage(p, sentences, words))
    dev = make(shards.build_dev_stage(p, sentences, words))
    general = shards.make_general_shards(p, sentences, words, make)
    at_once = p.finetuning.at_once
    encoder = pretraining.build_pretraining_stage(
        p, sequences, origin=origin, replay=general, dev=dev, beside=at_once - 1
    )
    list_cells = partial(arms.list_cells, p, make.store, sentences, encoder, origin=origin)
    early = arms.list_early_cells(p, list_cells(champion=None), encoder)
    fit = [vocabulary.build_vocabulary_choice_stage(p, sentences, origin)] if origin else []
    beside = [*zip(fit), *(cell.chain for cell in early)]
    make.make_side_by_side([(encoder,), *beside], at_once)
    cells = list(list_cells(champion=make.champion))
    late = [cell for cell in cells if not cell.is_among(early)]
    make.make_side_by_side([cell.chain for cell in late], at_once)
    begun = [origin] if origin and words is not origin else []
    mixed = [general] if general else []
    made = [*begun, reviews, sentences, words, *fit, sequences, dev, *mixed, encoder]
    command = report.format_command(p)
    return make(report.build_report_stage(command, p.preset, reviews, made, encoder, cells))


@flow(name="domain-adaptation", flow_run_name=name_run_by_preset, **FAILURE_HOOKS)
@take_fields(Parameters)
def domain_adaptation(**form: Any) -> dict[str, Any]:
    """Adapt a language model to a dump of reviews and measure what that was worth.

    Reads the dump, learns a vocabulary, pre-trains ELECTRA, fine-tunes it and an untrained encoder
    on the dump's own labels, and reports the difference with its confidence interval. Whatever the
    store holds already is not made again.
    """
    return run_graph(graph, Parameters(**form))
