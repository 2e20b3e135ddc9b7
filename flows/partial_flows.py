"""Parts of the graph to start alone: whatever they make, the whole graph finds complete later."""

from typing import Any

from prefect import flow

from flows.configuration.form import Parameters
from flows.configuration.form_tools import take_fields
from flows.runner.logs import FAILURE_HOOKS
from flows.runner.stage_runner import StageMaker
from flows.runs.graph_run import name_run_by_preset, run_graph
from flows.stages import corpus as corpus_stage
from flows.stages import pretraining as pretraining_stage
from flows.stages import shards as shards_stage
from flows.stages import vocabulary as vocabulary_stage
from flows.stages.dump import list_dump
from flows.stages.origin import make_origin
from flows.store.store import Stage

OF_DATA = ("dump", "preset", "corpus", "vocabulary", "shards")


def make_texts(p: Parameters, make: StageMaker, origin: Stage | None = None) -> tuple[Stage, Stage]:
    """Dump → corpus → vocabulary: what shards are made of."""
    reviews = make(list_dump(p.dump, make))
    corpus = make(corpus_stage.build_corpus_stage(p, reviews, make.store))
    return corpus, make(vocabulary_stage.build_vocabulary_stage(p, corpus, origin))


def make_shards(
    p: Parameters, make: StageMaker, corpus: Stage, vocabulary: Stage
) -> tuple[Stage, Stage]:
    """Return the shards, and those of the dev reviews, on which pre-training is measured."""
    shards = make(shards_stage.build_shards_stage(p, corpus, vocabulary))
    return shards, make(shards_stage.build_dev_stage(p, corpus, vocabulary))


def data_graph(p: Parameters, make: StageMaker) -> Stage:
    shards, _ = make_shards(p, make, *make_texts(p, make))
    return shards


def encoder_graph(p: Parameters, make: StageMaker) -> Stage:
    """Published start, if any → dump → … → pre-training."""
    origin = make_origin(p, make)
    texts = make_texts(p, make, origin)
    shards, dev = make_shards(p, make, *texts)
    general = shards_stage.make_general_shards(p, *texts, make)
    return make(
        pretraining_stage.build_pretraining_stage(p, shards, origin=origin, replay=general, dev=dev)
    )


@flow(name="prepare-data", flow_run_name=name_run_by_preset, **FAILURE_HOOKS)
@take_fields(Parameters, *OF_DATA, "engine", "store")
def prepare_data(**form: Any) -> dict[str, Any]:
    """Prepare the data alone: dump → corpus → vocabulary → shards."""
    return run_graph(data_graph, Parameters(**form))


@flow(name="pre-train", flow_run_name=name_run_by_preset, **FAILURE_HOOKS)
@take_fields(Parameters, *OF_DATA, "pretraining", "engine", "store")
def pre_train(**form: Any) -> dict[str, Any]:
    """Prepare the data and pre-train: up to the encoder."""
    return run_graph(encoder_graph, Parameters(**form))
