"""The stages of a study: pre-trainings of its arms, searches and cells. All are known before
anything is made; what is made of the same is the same stage as in other studies and runs.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.stages import report
from amazon_electra.flows.stages.finetuning import (
    Finetuned,
    Search,
    SearchConfig,
    Start,
    build_finetuning,
)
from amazon_electra.flows.stages.origin import build_external_stage, build_origin_stage
from amazon_electra.flows.stages.pretraining import Pretraining, TrainingConfig, build_training
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import (
    BUDGETS,
    Arm,
    Study,
    StudyTask,
    find_arm_name,
    is_made_later,
)
from amazon_electra.model.arms import find_arm
from amazon_electra.model.encoders.places import find_kind
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.report.inputs import ReportInput

DEV = "dev_shards"  # source that measures pre-trainings on shards that stages make


def build_cells(
    study: Study, sources: Mapping[str, Stage], store: Store, device: str
) -> list[Finetuned]:
    """Return every cell, in the order of the report, with all that it is made of; `sources` fill
    the variables of these names.
    """
    first_seed, resources = study.pretraining_seeds[0], Resources(device=device)

    @cache
    def find_source(place: str, loads: bool = False) -> Stage:
        """Return the stage of a place that the study names: of the graph, or an external one; an
        encoder in a package is loaded first, and one that pre-training starts from.
        """
        if is_made_later(place):
            return sources[place[2:-1]]
        if loads or find_kind(place) == "package":
            return build_origin_stage(place, store)
        return build_external_stage(place, store)

    def pretrain(arm: Arm, seed: int) -> Pretraining:
        own, equal, same = arm.pretraining, None, dict[str, Any]()
        for name in (name for name in BUDGETS if getattr(own, name)):
            equal = pretrain(study.find_arm(getattr(own, name)), seed)
            same = {name: equal.fingerprint}
        settings = {**own.settings, "seed": str(seed)}
        return build_training(
            TrainingConfig(recipe=own.recipe, settings=settings, **same),
            find_source(own.shards),
            resources,
            title=f"pre-training {arm.name} · seed {seed}",
            origin=find_source(own.start_from, loads=True) if own.start_from else None,
            dev=sources.get(DEV) if is_made_later(own.shards) else None,
            equal=equal,
        )

    def find_start(arm: Arm, pretraining: int) -> Start:
        if name := find_arm_name(arm.architecture):
            shape = find_start(study.find_arm(name), first_seed)
            return Start(shape.encoder, is_random=True)
        if arm.architecture:
            return Start(find_source(arm.architecture), is_random=True)
        if arm.pretraining:
            return Start(pretrain(arm, pretraining))
        return Start(find_source(arm.place) if arm.place else None, arm.method)

    def build_cell(arm: Arm, task: StudyTask, seed: int, pretraining: int) -> Finetuned:
        more = {"pretraining_seed": str(pretraining)} if arm.pretraining else {}
        settings = study.join_settings(task, arm)
        return build_finetuning(
            arm.name,
            FinetuneConfig(task=task.task, seed=seed, recipe=study.recipe, settings=settings),
            find_source(task.data),
            find_start(arm, pretraining),
            device,
            task=task.name,
            **more,
        )

    def build_search(arm: Arm) -> Search:
        """Return the search for the arm's settings, on dev of the first task with the first seeds;
        those found for another arm would favour that one.
        """
        one = build_cell(arm, study.tasks[0], study.seeds[0], first_seed)
        searched, title = study.search.model_dump(), f"search of {arm.name}"
        config = SearchConfig(**dict(one.config), **searched)
        return Search(config, one.inputs, reads=one.reads, resources=one.resources, title=title)

    cells = []
    for task, arm in itertools.product(study.tasks, study.arms):
        of_arm = study.pretraining_seeds if arm.pretraining else [first_seed]
        for pretraining, seed in itertools.product(of_arm, study.seeds if arm.suits(task) else ()):
            cell = build_cell(arm, task, seed, pretraining)
            if study.search.space and not find_arm(arm.method).is_cheap:
                cell = replace(cell, inputs={**cell.inputs, "search": build_search(arm)})
            cells.append(cell)
    return cells


def list_sources(stages: Sequence[Stage], name: str) -> list[Stage]:
    """Return the stages of this kind that these are made of, or know otherwise, equal ones once."""
    found, every = dict[str, Stage](), list(stages)
    for stage in every:
        every += [*stage.inputs.values(), *stage.reads.values()]
        if stage.name == name:
            found.setdefault(stage.path, stage)
    return list(found.values())


def build_study_report(
    study: Study, form: StudyForm, cells: Sequence[Finetuned], counted: Sequence[Stage]
) -> report.StudyReport:
    """Return the stage of the report; `counted` are the stages whose counts it shows."""

    def describe(store: Store) -> ReportInput:
        return ReportInput(
            title=study.title,
            question=study.question,
            command=report.format_command(
                form, "study", form.study.file, reads_dump=study.reads_dump
            ),
            arms=[report.describe_arm(store, own) for own in report.group_by_arm(cells).values()],
            cells=[report.describe_cell(store, cell) for cell in cells],
            **report.describe_sources(store, counted, list_sources(cells, "origin")),
        )

    return report.StudyReport(
        report.ReportConfig(study=study.model_dump(mode="json", exclude_defaults=True)),
        {cell.title: cell.evaluation for cell in cells},
        title=f"study {Path(form.study.file).stem}",
        describe=describe,
    )
