"""A study on one page: dump → … → as far as its file asks → pre-trainings of its arms → arms ×
tasks × seeds → report.
"""

import os
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from prefect import flow

from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.runner.stage_runner import allocate_threads
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import build_dump_stage, list_files
from amazon_electra.flows.stages.origin import build_start_stage, list_place_files
from amazon_electra.flows.stages.pretraining import build_pretraining_stage, has_accelerator
from amazon_electra.flows.stages.shards import build_general_shards_stage, build_shards_stages
from amazon_electra.flows.store.group import Group, Groups
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import Study, load_study
from amazon_electra.flows.studies.study_stages import DEV, StudyStages, build_study_report

planned_study: ContextVar[tuple[Study, Stage | None] | None] = ContextVar(
    "planned_study", default=None
)
"""The study that this context runs, and its dump as it was listed: a flow has only its form."""


def graph(form: StudyForm, study: Study, store: Store, dump: Stage | None = None) -> Groups:
    """Dump → … → pre-trainings → cells → report. The texts of its tasks are withheld from
    pre-training. `dump` is that of the form where it is listed already.
    """
    sources: dict[str, Stage] = {}
    yield from make_sources(form, study, store, sources, dump)
    at_once, threads = divide_cores(form, study)
    stages = StudyStages(study, sources, store, form.pretraining.finetuning_device, threads)
    report = build_study_report(stages, form, list(sources.values()))
    for origin in stages.origins:
        if origin not in sources.values():
            yield Group.of(origin)
    trainings: list[Sequence[Stage]] = [(stage,) for stage in stages.pretrainings]
    chains = stages.list_chains()
    if 1 < at_once == form.study.at_once:  # cells take the cores that trainings leave
        trainings, chains = [], [*trainings, *allocate_threads(chains, at_once)]
    yield Group(trainings, at_once)
    yield Group(chains, form.study.at_once)
    yield Group.of(report)


def make_sources(
    form: StudyForm, study: Study, store: Store, made: dict[str, Stage], dump: Stage | None
) -> Groups:
    """Yield the stages that fill the file's variables, and what they are made of, and add them to
    `made` by name; the files of tasks that do not come from the corpus are withheld from it.
    """
    wanted = study.wanted
    if not wanted:
        return

    def add(name: str, stage: Stage) -> Group:
        made[name] = stage
        return Group.of(stage)

    origin = build_start_stage(form.pretraining, store)
    if origin:
        yield add("origin", origin)
    if not study.reads_dump:
        return
    places = [Path(task.data).expanduser() for task in study.tasks]
    found = [file for place in places if place.exists() for file in list_place_files(place)]
    withheld = [*form.corpus.withhold, *sorted({str(path.resolve()) for path in found})]
    dump = dump or build_dump_stage(form.dump, store)
    labels.check_labels(study.labelled_tasks, form.dump)
    yield add("dump", dump)
    chosen = form.replace(corpus=form.corpus.replace(withhold=withheld))
    corpus = build_corpus_stage(chosen, dump, store)
    yield add("corpus", corpus)
    if counted := store.manifest(corpus):
        for task in study.labelled_tasks:
            labels.check_task(task, counted["result"])
    if not wanted & {"shards", "general_shards", "encoder"}:
        return
    vocabulary, shards, dev_shards = build_shards_stages(form, corpus, origin, store)
    yield add("vocabulary", vocabulary)
    yield add(DEV, dev_shards)
    if wanted & {"shards", "encoder"}:
        yield add("shards", shards)
    if "general_shards" in wanted:
        texts = [f for given in form.study.general_text for f in list_files(given, store)]
        kept_out = [f for given in withheld for f in list_files(given, store)]
        general = build_general_shards_stage(shards, texts, kept_out, store)
        yield add("general_shards", general)
    if "encoder" in wanted:
        yield add("encoder", build_pretraining_stage(form, shards, origin=origin, dev=dev_shards))


def divide_cores(form: StudyForm, study: Study) -> tuple[int, int]:
    """Return how many pre-trainings run side by side, and the threads of each (0: all cores)."""
    trained = sum(bool(arm.pretraining) for arm in study.arms)
    at_once = min(form.study.at_once, trained * len(study.pretraining_seeds))
    if at_once < 2 or has_accelerator(form.pretraining.device):
        return 1, 0
    return at_once, max(1, (os.cpu_count() or 1) // at_once)


@flow(name="study", flow_run_name=name_run)
@take_fields(StudyForm, *StudyForm.sections)
def study(**given: Any) -> dict[str, Any]:
    """Compare ways to get and to fine-tune an encoder, each difference with its interval and paired
    test.
    """
    form = StudyForm(**given)
    store = Store(form.store)
    if known := planned_study.get():
        loaded, dump = known
    else:
        loaded = load_study(form)
        dump = build_dump_stage(form.dump, store) if loaded.reads_dump else None
    return run_graph(lambda _: graph(form, loaded, store, dump), form, store, dump)
