"""A study on one page: dump → … → as far as its file asks → pre-trainings of its arms → arms ×
tasks × seeds → report. Each is a stage of its own, made once for all studies and runs that need it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import Field

from amazon_electra.flows.configuration.form import Parameters, Pretraining, RecipeName
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.runner.stage_runner import StageMaker, allocate_threads
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.runs.missed_runs import catch_up_once
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import list_dump, list_files
from amazon_electra.flows.stages.external import list_place_files
from amazon_electra.flows.stages.origin import make_origin
from amazon_electra.flows.stages.pretraining import build_pretraining_stage, shares_cores
from amazon_electra.flows.stages.shards import (
    build_dev_stage,
    build_general_shards_stage,
    build_shards_stage,
    choose_sequence_length,
)
from amazon_electra.flows.stages.vocabulary import build_vocabulary_stage
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.studies.study_reading import LoadedStudy, load_study
from amazon_electra.flows.studies.study_report import build_study_report
from amazon_electra.flows.studies.study_stages import DEV, StudyStages


def build_study_graph(loaded: LoadedStudy) -> Callable[[Parameters, StageMaker], Stage]:
    """Return the graph of a study. The texts of its tasks are withheld from pre-training."""

    def graph(p: Parameters, make: StageMaker) -> Stage:
        sources = make_sources(p, loaded, make)
        at_once, threads = divide_cores(p, loaded)
        stages = StudyStages(loaded, sources, make.store, p.pretraining.finetuning_device, threads)
        report = build_study_report(stages, p, list(sources.values()))
        is_shared = make.store.manifest(report) is None
        for origin in stages.origins:
            if origin not in sources.values():
                make(origin)
        equal = {stage.fingerprint: stage for _, _, stage in stages.pretrainings}
        trainings: list[Sequence[Stage]] = [
            (replace(stage, shared=is_shared),) for stage in equal.values()
        ]
        chains: list[Sequence[Stage]] = [*stages.list_chains(is_shared)]
        if 1 < at_once == loaded.choice.at_once:  # cells take the cores that trainings leave
            trainings, chains = [], [*trainings, *allocate_threads(chains, at_once)]
        if trainings:
            make.make_side_by_side(trainings, at_once)
        make.make_side_by_side(chains, loaded.choice.at_once)
        for latency in stages.latencies.values():
            make(latency)
        return make(report)

    return graph


def make_sources(p: Parameters, loaded: LoadedStudy, make: StageMaker) -> dict[str, Stage]:
    """Make and return the stages that fill the file's variables, and what they are made of; the
    files of tasks that do not come from the corpus are withheld from it.
    """
    wanted = loaded.wanted
    if not wanted:
        return {}
    places = [Path(task.data).expanduser() for task in loaded.study.tasks]
    found = [file for place in places if place.exists() for file in list_place_files(place)]
    withheld = [*p.corpus.withhold, *sorted({str(path.resolve()) for path in found})]
    chosen = p.corpus.replace(withhold=withheld)
    origin = make_origin(p.pretraining, make)
    length = choose_sequence_length(p.shards, p.recipe, origin, make.store)
    made = {"origin": origin} if origin else {}
    if wanted == {"origin"}:
        return made
    dump = made["dump"] = make(list_dump(p.dump, make))
    labels.check_dump(loaded.labelled_tasks, p.dump, dump, make, chosen)
    corpus = made["corpus"] = make(build_corpus_stage(chosen, p.dump, p.engine, dump, make.store))
    labels.check_corpus(loaded.labelled_tasks, corpus, make.store)
    if not wanted & {"shards", "general_shards", "encoder"}:
        return made
    vocabulary = made["vocabulary"] = make(
        build_vocabulary_stage(p.vocabulary, p.recipe, corpus, origin)
    )
    dev_shards = made[DEV] = make(build_dev_stage(length, corpus, vocabulary))
    engine = Resources(engine=p.engine, workers=p.corpus.workers)
    if wanted & {"shards", "encoder"}:
        made["shards"] = make(build_shards_stage(length, corpus, vocabulary, engine))
    if "general_shards" in wanted:
        texts = [f for given in loaded.choice.general_text for f in list_files(given, make.store)]
        kept_out = [f for given in withheld for f in list_files(given, make.store)]
        made["general_shards"] = make(
            build_general_shards_stage(
                length, texts, kept_out, corpus, vocabulary, engine, make.store
            )
        )
    if "encoder" in wanted:
        made["encoder"] = make(
            build_pretraining_stage(p, made["shards"], origin=origin, dev=dev_shards)
        )
    return made


def divide_cores(p: Parameters, loaded: LoadedStudy) -> tuple[int, int]:
    """Return how many pre-trainings run side by side, and the threads of each (0: all cores).

    Small encoders do not fill a CPU; an accelerator takes one after the other.
    """
    trained = sum(bool(arm.pretraining) for arm in loaded.study.arms)
    at_once = min(loaded.choice.at_once, trained * len(loaded.study.pretraining_seeds))
    if at_once < 2 or not shares_cores(p.pretraining.device, p.engine):
        return 1, 0
    return at_once, max(1, (os.cpu_count() or 1) // at_once)


class StudyForm(Parameters):
    """What a run of a study is asked to do."""

    study: StudyChoice = StudyChoice()
    recipe: RecipeName = Field(default="sample", description="Size of the encoder.")
    pretraining: Pretraining = Field(
        default=Pretraining(), description="Of the encoder that the study's arms start from."
    )


FORM_SECTIONS = (
    "dump",
    "recipe",
    "corpus",
    "vocabulary",
    "shards",
    "pretraining",
    "engine",
    "store",
)


@flow(name="study", flow_run_name=name_run)
@catch_up_once
@take_fields(StudyForm, "study", *FORM_SECTIONS)
def study(**given: Any) -> dict[str, Any]:
    """Compare ways to get and to fine-tune an encoder, each difference with its interval and paired
    test.
    """
    choice = given.pop("study")
    parameters = Parameters(**given)
    loaded = load_study(parameters, choice)
    return run_graph(build_study_graph(loaded), parameters, reads_dump=loaded.reads_dump)
