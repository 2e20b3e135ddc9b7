"""The stages of a study: pre-trainings of its arms, searches and cells. All are known before
anything is made; what is made of the same is the same stage as in other studies and runs.
"""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.settings import replace_settings
from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.stages.cells import Cell
from amazon_electra.flows.stages.finetuning import (
    Finetuning,
    Start,
    build_evaluation_stage,
    build_finetuning_stage,
    build_search_stage,
)
from amazon_electra.flows.stages.origin import build_external_stage, build_origin_stage
from amazon_electra.flows.stages.pretraining import (
    ADAPTATIONS,
    ContrastiveAdaptation,
    build_training,
)
from amazon_electra.flows.stages.report import (
    StudyConfig,
    StudyReport,
    describe_cell,
    describe_sources,
    is_held_out,
    list_options,
)
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.flows.studies.study_file import BUDGETS, Arm, Study, StudyTask, is_made_later
from amazon_electra.model.config import ContrastiveConfig
from amazon_electra.model.encoders.places import find_kind
from amazon_electra.model.finetuning import search
from amazon_electra.model.finetuning.request import is_part_of_teacher
from amazon_electra.model.report.inputs import ArmFacts, ReportInput

DEV = "dev_shards"  # source that measures pre-trainings on shards that stages make
MADE_SHARDS = ("${shards}", "${general_shards}")


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
        self._finetuned: dict[tuple[Any, ...], Stage] = {}

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

    def find_origin(self, arm: Arm) -> Stage | None:
        """Return the published encoder that an arm is, or starts from, if it is loaded here; of a
        student that is a part of its teacher, or begins with random weights, that of the teacher.
        """
        for one in self.study.list_with_teachers(arm):
            if own := one.pretraining:
                return self.find_source(own.start_from, loads=True) if own.start_from else None
            if one.place:
                source = self.find_source(one.place)
                return source if source.name == "origin" else None
        return None

    @property
    def origins(self) -> list[Stage]:
        """Every published encoder of the study that is loaded into the store, once."""
        found = map(self.find_origin, self.study.arms)
        return list({stage.fingerprint: stage for stage in found if stage}.values())

    def list_pretraining_seeds(self, arm: Arm) -> Sequence[int | None]:
        """Return the seeds of the pre-trainings that the arm, or its teacher, starts from."""
        is_trained = any(one.pretraining for one in self.study.list_with_teachers(arm))
        return self.study.pretraining_seeds if is_trained else [None]

    def build_pretraining(self, arm: Arm, seed: int) -> Stage:
        """Return the pre-training of an arm, which shares it with all that pre-train the same."""
        own, origin, settings = arm.pretraining, self.find_origin(arm), arm.pretraining.settings
        several = f" · seed {seed}" if len(self.study.pretraining_seeds) > 1 else ""
        title, resources = f"pre-training {arm.name}{several}", self.resources
        if own.corpus:
            [config] = replace_settings([ContrastiveConfig(seed=seed)], settings, arm.name)
            assert origin  # the file is checked
            inputs = {"corpus": self.find_source(own.corpus), "origin": origin}
            return ContrastiveAdaptation(config, inputs, resources=resources, title=title)
        budget: dict[str, Any] = {"steps": int(settings.pop("steps", 0))}
        for name in BUDGETS:
            if other := getattr(own, name):
                equal = self.build_pretraining(self.study.find_arm(other), seed)
                budget = {"equal": equal, name: equal.fingerprint}
        dev = self.sources.get(DEV) if own.shards in MADE_SHARDS else None
        of_arm = own.recipe, settings, seed, self.find_source(own.shards), resources
        return build_training(*of_arm, title=title, origin=origin, dev=dev, **budget)

    @cached_property
    def pretrainings(self) -> list[Stage]:
        """Every pre-training of an arm, in the order of the study, equal ones once."""
        arms = [arm for arm in self.study.arms if arm.pretraining]
        seeds = itertools.product(arms, self.study.pretraining_seeds)
        found = [self.build_pretraining(arm, seed) for arm, seed in seeds]
        return list({stage.fingerprint: stage for stage in found}.values())

    def find_encoder(self, arm: Arm, seed: int | None = None) -> Stage:
        """Return an arm's encoder: of a pre-trained one that of this seed, or of the first."""
        if not arm.pretraining:
            return self.find_source(arm.place)
        first = self.study.pretraining_seeds[0]
        return self.build_pretraining(arm, first if seed is None else seed)

    def describe(self, arm: Arm, task: StudyTask, seed: int, pretraining: int | None) -> Finetuning:
        """Return what a cell computes; a teacher's is of the same task and seeds."""
        study, teacher, start = self.study, None, Start(arm=arm.method)
        if arm.taught_by:
            other = study.find_arm(arm.taught_by)
            known = self.list_pretraining_seeds(other)
            of_teacher = pretraining if pretraining in known else known[0]
            teacher = self.build_finetuning(other, task, seed, of_teacher)
        elif arm.teacher:
            teacher = self.find_source(arm.teacher)
        if is_part_of_teacher(arm.encoder):
            start = Start(kind=arm.encoder, teacher=teacher)
        elif arm.shaped_by:
            encoder = self.find_encoder(study.find_arm(arm.shaped_by))
            start = Start(encoder, kind="random", teacher=teacher)
        elif arm.architecture:
            encoder = self.find_source(arm.architecture)
            start = Start(encoder, kind="random", teacher=teacher)
        elif arm.place or arm.pretraining:
            start = Start(self.find_encoder(arm, pretraining), arm.method, teacher=teacher)
        data, settings = self.find_source(task.data), study.join_settings(task, arm)
        own = task.task, seed, data, settings
        return Finetuning(start, *own, study.recipe or "", self.resources.device)

    def build_finetuning(
        self, arm: Arm, task: StudyTask, seed: int, pretraining: int | None
    ) -> Stage:
        """Return the fine-tuning of a cell."""
        key = arm.name, task.name, seed, pretraining
        if key not in self._finetuned:
            asked = self.describe(arm, task, seed, pretraining)
            asked = replace(asked, search=self.build_search(arm))
            title = f"{arm.name} · {task.name} · seed {seed}"
            if pretraining is not None and len(self.study.pretraining_seeds) > 1:
                title += f" · pre-training seed {pretraining}"
            labels = {"arm": arm.name, "task": task.name, "seed": str(seed)}
            self._finetuned[key] = build_finetuning_stage(asked, title, labels)
        return self._finetuned[key]

    def build_search(self, arm: Arm) -> Stage | None:
        """Return the search for the arm's settings, on dev of the first task with the first seeds;
        those found for another arm would favour that one.
        """
        space = self.study.search.space
        if not arm.teacher:
            space = search.drop_teacher_settings(space)
        if not space or arm.is_baseline:
            return None
        seeds = self.study.seeds[0], self.list_pretraining_seeds(arm)[0]
        asked = self.describe(arm, self.study.tasks[0], *seeds)
        return build_search_stage(asked, space, self.study.search.trials, f"search of {arm.name}")

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell, in the order of the report."""
        found = []
        for task, arm in itertools.product(self.study.tasks, self.study.arms):
            seeds = itertools.product(self.list_pretraining_seeds(arm), self.study.seeds)
            for pretraining, seed in seeds if arm.suits(task) else ():
                finetuned = self.build_finetuning(arm, task, seed, pretraining)
                made = finetuned, build_evaluation_stage(finetuned)
                found.append(Cell(arm.name, task.name, seed, *made, 0, pretraining))
        return found

    def list_chains(self) -> list[Sequence[Stage]]:
        """Return searches and cells after what they are made of; those that wait come last."""
        trained = {stage.fingerprint for stage in self.pretrainings}

        def find_place(cell: Cell) -> tuple[bool, int]:
            teachers = self.study.list_with_teachers(self.study.find_arm(cell.arm))
            return cell.finetuned.is_made_of(trained), len(teachers)

        chains: dict[str, Sequence[Stage]] = {}
        for cell in sorted(self.cells, key=find_place):
            if found := cell.finetuned.inputs.get("search"):
                chains.setdefault(found.fingerprint, (found,))
            chains.setdefault(cell.finetuned.fingerprint, cell.chain)
        return list(chains.values())


def build_study_report(
    stages: StudyStages, form: StudyForm, counted: Sequence[Stage]
) -> StudyReport:
    """Return the stage of the report; `counted` are the stages whose counts it shows."""
    return StudyReport(
        StudyConfig(study=stages.study.model_dump(mode="json", exclude_defaults=True)),
        {cell.evaluated.label: cell.evaluated for cell in stages.cells},
        title=form.study.title,
        describe=lambda store: describe_study(stages, form, counted),
    )


def describe_study(stages: StudyStages, form: StudyForm, counted: Sequence[Stage]) -> ReportInput:
    """Return study.json, as model/report/report.py reads it."""
    study, store = stages.study, stages.store
    return ReportInput(
        title=study.title,
        question=study.question,
        command=format_command(study, form),
        arms=[describe_arm(stages, arm) for arm in study.arms],
        cells=[describe_cell(store, cell) for cell in stages.cells],
        **describe_sources(store, counted, stages.origins),
    )


def describe_arm(stages: StudyStages, arm: Arm) -> ArmFacts:
    """Return what is known of an arm: what its encoder has seen, and what that cost."""
    store, (seen, is_known) = stages.store, find_trainings(stages, arm)
    origin, result = stages.find_origin(arm), dict[str, Any]()
    if arm.pretraining:
        result = read_json(store.fetch(stages.find_encoder(arm), "result.json") / "result.json")
    held_out = [
        task.name
        for task in stages.study.tasks
        if all(is_held_out(store, made, stages.find_source(task.data)) for made in seen)
    ]
    return ArmFacts(
        name=arm.name,
        data_known=is_known,
        held_out=held_out if seen else None,
        origin=origin.fingerprint if origin else "",
        **{name: result.get(name) for name in ("tokens", "matrix_flops", "seconds")},
    )


def format_command(study: Study, form: StudyForm) -> str:
    """Return what makes the study again, as a shell reads it."""
    options = list_options(form, study.reads_dump)
    return shlex.join(["amazon-electra", "study", form.study.file, *options])


def find_trainings(stages: StudyStages, arm: Arm) -> tuple[list[Manifest], bool]:
    """Return the pre-trainings of an arm and its teachers, and whether these are all."""
    chain = stages.study.list_with_teachers(arm)
    encoders = [stages.find_encoder(one) for one in chain if one.pretraining or one.place]
    trained = [one for one in encoders if one.name in ADAPTATIONS]
    is_known = trained == encoders and all(one.taught_by or not one.teacher for one in chain)
    return [made for one in trained if (made := stages.store.manifest(one))], is_known
