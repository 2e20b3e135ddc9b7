"""Parts of the graph to start alone: whatever they make, the whole graph finds complete later."""

from typing import Any

from prefect import flow

from flows.configuration.form import Parameters
from flows.configuration.form_tools import take_fields
from flows.runner.logs import FAILURE_HOOKS
from flows.runner.stage_runner import StageMaker
from flows.runs.graph_run import name_run_by_recipe, run_graph
from flows.stages.corpus import build_corpus_stage
from flows.stages.dump import list_dump
from flows.stages.origin import make_origin
from flows.stages.pretraining import build_pretraining_stage
from flows.stages.shards import build_dev_stage, build_shards_stage
from flows.stages.vocabulary import build_vocabulary_stage
from flows.store.store import Stage

OF_DATA = ("dump", "recipe", "corpus", "vocabulary", "shards")


def data_graph(p: Parameters, make: StageMaker) -> Stage:
    """Dump → corpus → vocabulary → shards."""
    dump = make(list_dump(p.dump, make))
    corpus = make(build_corpus_stage(p, dump, make.store))
    vocabulary = make(build_vocabulary_stage(p, corpus))
    shards = make(build_shards_stage(p, corpus, vocabulary))
    make(build_dev_stage(p, corpus, vocabulary))
    return shards


def encoder_graph(p: Parameters, make: StageMaker) -> Stage:
    """Published encoder, if any → dump → corpus → vocabulary → shards → pre-training."""
    origin = make_origin(p, make)
    dump = make(list_dump(p.dump, make))
    corpus = make(build_corpus_stage(p, dump, make.store))
    vocabulary = make(build_vocabulary_stage(p, corpus, origin))
    shards = make(build_shards_stage(p, corpus, vocabulary))
    dev_shards = make(build_dev_stage(p, corpus, vocabulary))
    return make(build_pretraining_stage(p, shards, origin=origin, dev=dev_shards))


@flow(name="prepare-data", flow_run_name=name_run_by_recipe, **FAILURE_HOOKS)
@take_fields(Parameters, *OF_DATA, "engine", "store")
def prepare_data(**form: Any) -> dict[str, Any]:
    """Prepare the data alone: dump → corpus → vocabulary → shards."""
    return run_graph(data_graph, Parameters(**form))


@flow(name="pre-train", flow_run_name=name_run_by_recipe, **FAILURE_HOOKS)
@take_fields(Parameters, *OF_DATA, "pretraining", "engine", "store")
def pre_train(**form: Any) -> dict[str, Any]:
    """Prepare the data and pre-train: up to the encoder."""
    return run_graph(encoder_graph, Parameters(**form))
