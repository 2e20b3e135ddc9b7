"""A study on one page: dump → … → as far as its file asks → pre-trainings of its arms → arms ×
tasks × seeds → report.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import flow

from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.runs.graph_run import name_run, run_graph
from amazon_electra.flows.stages.corpus import WITHHOLD, build_corpus_stage, build_shards_stages
from amazon_electra.flows.stages.dump import build_dump_stage, hash_files
from amazon_electra.flows.stages.origin import build_start_stage, list_place_files
from amazon_electra.flows.stages.pretraining import build_pretraining_stage
from amazon_electra.flows.store.stage import Group, Groups, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies import study_stages
from amazon_electra.flows.studies.study_file import Study, load_study


def graph(form: StudyForm, study: Study, store: Store) -> Groups:
    """Dump → … → pre-trainings → cells → report."""
    sources: dict[str, Stage] = {}
    for name, stage in make_sources(form, study, store):
        sources[name] = stage
        yield Group.of(stage)
    cells = study_stages.build_cells(study, sources, store, form.pretraining.finetuning_device)
    known = {stage.path for stage in sources.values()}
    origins, trainings, searches = (
        [[one] for one in study_stages.list_sources(cells, name) if one.path not in known]
        for name in ("origin", "pretraining", "search")
    )
    yield Group(origins)
    yield Group(trainings)
    fitted = {cell.path: [cell, cell.evaluation] for cell in cells}
    yield Group([*searches, *fitted.values()], form.study.at_once)
    yield Group.of(study_stages.build_study_report(study, form, cells, list(sources.values())))


def make_sources(form: StudyForm, study: Study, store: Store) -> Iterator[tuple[str, Stage]]:
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
    dump = build_dump_stage(form.dump, store)
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
    yield study_stages.DEV, dev_shards
    if wanted & {"shards", "encoder"}:
        yield "shards", shards
    if "general_shards" in wanted:
        texts = hash_files(form.study.general_text, store, "study.general_text")
        files = {"general_text": texts, "withhold": hash_files(withheld, store, WITHHOLD)}
        yield "general_shards", replace(shards, files=files, title="general-text shards")
    if "encoder" in wanted:
        yield "encoder", build_pretraining_stage(form, shards, origin, dev_shards)


@flow(name="study", flow_run_name=name_run)
@take_fields(StudyForm, *StudyForm.sections)
def study(**given: Any) -> dict[str, Any]:
    """Compare ways to get and to fine-tune an encoder, each difference with its interval and paired
    test.
    """
    form = StudyForm(**given)
    loaded, store = load_study(form), Store(form.store)
    return run_graph(lambda _: graph(form, loaded, store), form, store, None)
