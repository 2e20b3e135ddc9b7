"""The stages of a study: pre-trainings of its arms, searches and cells. All are known before
anything is made; what is made of the same is the same stage as in other studies and runs.
"""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.stages.finetuning import (
    Finetuned,
    Search,
    SearchConfig,
    Start,
    build_finetuning,
)
from amazon_electra.flows.stages.origin import build_external_stage, build_origin_stage
from amazon_electra.flows.stages.pretraining import (
    TrainingConfig,
    build_training,
)
from amazon_electra.flows.stages.report import (
    StudyConfig,
    StudyReport,
    describe_arm,
    describe_cell,
    describe_sources,
    group_by_arm,
    list_options,
)
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import BUDGETS, Arm, Study, StudyTask, is_made_later
from amazon_electra.model.encoders.places import find_kind
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.report.inputs import ReportInput

DEV = "dev_shards"  # source that measures pre-trainings on shards that stages make


class StudyStages:
    """`sources` fill the variables of these names; `device` and `threads` are the jobs'."""

    def __init__(
        self,
        study: Study,
        sources: Mapping[str, Stage],
        store: Store,
        device: str = "auto",
        threads: int = 0,
    ):
        self.study, self.store, self.sources = study, store, sources
        self.resources = Resources(device=device, threads=threads)
        self._found: dict[tuple[str, bool], Stage] = {}

    def find_source(self, place: str, loads: bool = False) -> Stage:
        """Return the stage of a place that the study names: of the graph, or an external one; an
        encoder in a package is loaded first, and one that pre-training starts from.
        """
        if is_made_later(place):
            return self.sources[place[2:-1]]
        key = place, loads or find_kind(place) == "package"
        if key not in self._found:
            build = build_origin_stage if key[1] else build_external_stage
            self._found[key] = build(place, self.store)
        return self._found[key]

    def build_pretraining(self, arm: Arm, seed: int) -> Stage:
        """Return the pre-training of an arm, which shares it with all that pre-train the same."""
        own, equal, settings = arm.pretraining, None, arm.pretraining.settings
        origin = self.find_source(own.start_from, loads=True) if own.start_from else None
        several = f" · seed {seed}" if len(self.study.pretraining_seeds) > 1 else ""
        title = f"pre-training {arm.name}{several}"
        same = dict[str, Any]()
        for name in (name for name in BUDGETS if getattr(own, name)):
            equal = self.build_pretraining(self.study.find_arm(getattr(own, name)), seed)
            same = {name: equal.fingerprint}
        settings = {**settings, "seed": str(seed)}
        return build_training(
            TrainingConfig(recipe=own.recipe, settings=settings, **same),
            self.find_source(own.shards),
            self.resources,
            title=title,
            origin=origin,
            dev=self.sources.get(DEV) if is_made_later(own.shards) else None,
            equal=equal,
        )

    @cached_property
    def pretrainings(self) -> list[Stage]:
        """Every pre-training of an arm, in the order of the study, equal ones once."""
        arms = [arm for arm in self.study.arms if arm.pretraining]
        seeds = itertools.product(arms, self.study.pretraining_seeds)
        found = [self.build_pretraining(arm, seed) for arm, seed in seeds]
        return list({stage.fingerprint: stage for stage in found}.values())

    def find_start(self, arm: Arm, pretraining: int) -> Start:
        """Return what a cell starts from: of a pre-trained arm the encoder of this seed."""
        if arm.architecture:
            first = self.study.pretraining_seeds[0]
            if arm.shaped_by:
                shape = self.find_start(self.study.find_arm(arm.shaped_by), first).encoder
            else:
                shape = self.find_source(arm.architecture)
            return Start(shape, is_random=True)
        if arm.pretraining:
            return Start(self.build_pretraining(arm, pretraining))
        return Start(self.find_source(arm.place) if arm.place else None, arm.method)

    def build_cell(
        self, arm: Arm, task: StudyTask, seed: int, pretraining: int, searches: bool = True
    ) -> Finetuned:
        """Return a cell, which `searches` for its settings or not."""
        study, settings = self.study, self.study.join_settings(task, arm)
        more = {"pretraining_seed": str(pretraining)} if arm.pretraining else {}
        cell = build_finetuning(
            arm.name,
            FinetuneConfig(task=task.task, seed=seed, recipe=study.recipe, settings=settings),
            self.find_source(task.data),
            self.find_start(arm, pretraining),
            self.resources.device,
            task=task.name,
            **more,
        )
        if searches and study.search.space and not arm.is_baseline:
            return replace(cell, inputs={**cell.inputs, "search": self.build_search(arm)})
        return cell

    def build_search(self, arm: Arm) -> Search:
        """Return the search for the arm's settings, on dev of the first task with the first seeds;
        those found for another arm would favour that one.
        """
        study, search = self.study, self.study.search
        first = study.tasks[0], study.seeds[0], study.pretraining_seeds[0]
        one = self.build_cell(arm, *first, searches=False)
        config = SearchConfig(**dict(one.config), space=search.space, trials=search.trials)
        title, own = f"search of {arm.name}", one.resources
        return Search(config, one.inputs, reads=one.reads, resources=own, title=title)

    @cached_property
    def cells(self) -> list[Finetuned]:
        """Every cell, in the order of the report."""
        study, found = self.study, []
        for task, arm in itertools.product(study.tasks, study.arms):
            of_arm = study.pretraining_seeds[: None if arm.pretraining else 1]
            for pretraining, seed in itertools.product(of_arm, study.seeds):
                if arm.suits(task):
                    found.append(self.build_cell(arm, task, seed, pretraining))
        return found

    @cached_property
    def origins(self) -> list[Stage]:
        """The published encoders that the study loads into the store, once each."""
        found = dict[str, Stage]()
        stages: list[Stage] = [*self.cells]
        for stage in stages:
            stages += stage.inputs.values()
            if stage.name == "origin":
                found[stage.path] = stage
        return list(found.values())

    def list_chains(self) -> list[Sequence[Stage]]:
        """Return searches and cells, equal ones once."""
        chains: dict[str, Sequence[Stage]] = {}
        for cell in self.cells:
            if found := cell.inputs.get("search"):
                chains.setdefault(found.path, (found,))
            chains.setdefault(cell.path, (cell, cell.evaluation))
        return list(chains.values())


def build_study_report(
    stages: StudyStages, form: StudyForm, counted: Sequence[Stage]
) -> StudyReport:
    """Return the stage of the report; `counted` are the stages whose counts it shows."""
    study = stages.study

    def describe(store: Store) -> ReportInput:
        return ReportInput(
            title=study.title,
            question=study.question,
            command=format_command(study, form),
            arms=[describe_arm(store, own) for own in group_by_arm(stages.cells).values()],
            cells=[describe_cell(store, cell) for cell in stages.cells],
            **describe_sources(store, counted, stages.origins),
        )

    return StudyReport(
        StudyConfig(study=study.model_dump(mode="json", exclude_defaults=True)),
        {cell.title: cell.evaluation for cell in stages.cells},
        title=f"study {Path(form.study.file).stem}",
        describe=describe,
    )


def format_command(study: Study, form: StudyForm) -> str:
    """Return what makes the study again, as a shell reads it."""
    options = list_options(form, study.reads_dump)
    return shlex.join(["amazon-electra", "study", form.study.file, *options])
