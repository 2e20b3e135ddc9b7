"""The report of a study: its stage, and the description of the study that the stage renders."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.stages.pretraining import ADAPTATIONS
from amazon_electra.flows.stages.report import (
    StudyConfig,
    StudyReport,
    describe_cell,
    describe_sources,
    is_held_out,
    list_options,
)
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest
from amazon_electra.flows.studies.study_file import Arm, Study
from amazon_electra.flows.studies.study_stages import StudyStages
from amazon_electra.model.report.inputs import ArmFacts, ReportInput


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
        file = store.fetch(stages.find_encoder(arm), "result.json") / "result.json"
        result = json.loads(file.read_text(encoding="utf-8"))
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
