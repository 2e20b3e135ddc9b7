"""A study on one page: dump → … → as far as its file asks → pre-trainings of its arms → arms ×
tasks × seeds → report.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefect import flow

from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.stages.origin import build_start_stage, list_place_files
from amazon_electra.flows.stages.pretraining import build_pretraining_stage, has_accelerator
from amazon_electra.flows.stages.shards import build_general_shards_stage, build_shards_stages
from amazon_electra.flows.store.stage import Group, Groups, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import Study, load_study
from amazon_electra.flows.studies.study_stages import DEV, StudyStages, build_study_report


def graph(form: StudyForm, study: Study, store: Store, dump: Stage | None = None) -> Groups:
    """Dump → … → pre-trainings → cells → report. The texts of its tasks are withheld from
    pre-training. `dump` is that of the form where it is listed already.
    """
    sources: dict[str, Stage] = {}
    for name, stage in make_sources(form, study, store, dump):
        sources[name] = stage
        yield Group.of(stage)
    at_once, threads = divide_cores(form, study)
    stages = StudyStages(study, sources, store, form.pretraining.finetuning_device, threads)
    report = build_study_report(stages, form, list(sources.values()))
    yield Group([[origin] for origin in stages.origins if origin not in sources.values()])
    yield Group([[stage] for stage in stages.pretrainings], at_once)
    yield Group(stages.list_chains(), form.study.at_once)
    yield Group.of(report)


def make_sources(
    form: StudyForm, study: Study, store: Store, dump: Stage | None
) -> Iterator[tuple[str, Stage]]:
    """Yield the stages that fill the file's variables, and what they are made of, by name; the
    files of tasks that do not come from the corpus are withheld from it.
    """
    wanted = study.wanted
    origin = build_start_stage(form.pretraining, store) if wanted else None
    if origin:
        yield "origin", origin
    if not study.reads_dump:
        return
    places = [Path(task.data).expanduser() for task in study.tasks]
    found = [file for place in places if place.exists() for file in list_place_files(place)]
    withheld = [*form.corpus.withhold, *sorted({str(path.resolve()) for path in found})]
    dump = dump or build_dump_stage(form.dump, store)
    labels.check_labels(study.labelled_tasks, form.dump)
    yield "dump", dump
    chosen = form.replace(corpus=form.corpus.replace(withhold=withheld))
    corpus = build_corpus_stage(chosen, dump, store)
    yield "corpus", corpus
    if counted := store.manifest(corpus):
        for task in study.labelled_tasks:
            labels.check_task(task, counted["result"])
    if not wanted & {"shards", "general_shards", "encoder"}:
        return
    vocabulary, shards, dev_shards = build_shards_stages(form, corpus, origin, store)
    yield "vocabulary", vocabulary
    yield DEV, dev_shards
    if wanted & {"shards", "encoder"}:
        yield "shards", shards
    if "general_shards" in wanted:
        texts = form.study.general_text
        yield "general_shards", build_general_shards_stage(shards, texts, withheld, store)
    if "encoder" in wanted:
        yield "encoder", build_pretraining_stage(form, shards, origin=origin, dev=dev_shards)


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
    loaded, store = load_study(form), Store(form.store)
    dump = build_dump_stage(form.dump, store) if loaded.reads_dump else None
    return run_graph(lambda _: graph(form, loaded, store, dump), form, store, dump)
