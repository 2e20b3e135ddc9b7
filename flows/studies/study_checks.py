"""What is wrong with a study, found before anything is started; each mistake is one line that
begins with its field.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import format_value, replace_settings
from amazon_electra.flows.configuration.form import SHAPE
from amazon_electra.flows.configuration.study_file import Arm, Study, StudyTask
from amazon_electra.model.config import ContrastiveConfig, FinetuningSettings
from amazon_electra.model.encoders.places import FORMS, find_kind
from amazon_electra.model.finetuning import search
from amazon_electra.model.finetuning.request import (
    change_settings,
    check_for_task,
    is_part_of_teacher,
)
from amazon_electra.model.finetuning.splits import check_data
from amazon_electra.model.finetuning.tasks import TASKS, corpus, find_task
from amazon_electra.model.recipes import RECIPES, apply_settings, check_start_is_not_needed

BUDGETS = ("same_flops_as", "same_tokens_as")


def validate_study(study: Study) -> Iterator[str]:
    """Yield every mistake that the text alone shows."""
    arms, tasks = [arm.name for arm in study.arms], [task.name for task in study.tasks]
    for field, names, remedy in (("arms", arms, ""), ("tasks", tasks, "; give each a `title`")):
        if twice := {name for name in names if names.count(name) > 1}:
            yield f"{field}: two of the same name: {', '.join(sorted(twice))}{remedy}"
    for i, arm in enumerate(study.arms):
        yield from (f"arms[{i}].{mistake}" for mistake in _check_arm(study, arm))
    for i, task in enumerate(study.tasks):
        try:
            if task.task not in TASKS and not task.task.startswith(corpus.LABEL):
                known = ", ".join([*sorted(TASKS), "label:COLUMN"])
                yield f"tasks[{i}].task: no task {task.task!r}; there are {known}"
        except UserError as mistake:
            yield f"tasks[{i}].task: {mistake.message}"
    yield from _check_settings(study)


def find_missing_places(study: Study) -> Iterator[str]:
    """Yield folders and files that are not there, and data in which a task finds no example; places
    written `${name}` are made later.
    """
    for i, task in enumerate(study.tasks):
        if not is_made_later(task.data):
            try:
                if not Path(task.data).exists():
                    raise UserError("no such file or folder")
                check_data(find_task(task.task, Path(task.data)), Path(task.data))
            except UserError as mistake:
                yield f"tasks[{i}].data: {task.data}: {mistake}"
    for i, arm in enumerate(study.arms):
        own = arm.pretraining
        folders = [
            ("pretraining.shards", own.shards, "shards.json"),
            ("pretraining.corpus", own.corpus, "corpus.json"),
            ("teacher", "" if arm.taught_by else arm.teacher, "task.json"),
            ("architecture", "" if arm.shaped_by else arm.architecture, "config.json"),
        ]
        encoder = "" if arm.is_without_folder else arm.place
        for field, place in (("encoder", encoder), ("pretraining.start_from", own.start_from)):
            if place.startswith(("/", ".", "~")) or (place and Path(place).exists()):
                folders.append((field, place, "config.json"))  # other names may be on the hub
        for field, place, file in folders:
            if place and not is_made_later(place) and not (Path(place) / file).exists():
                yield f"arms[{i}].{field}: {place}: there is no {file}"


def is_made_later(place: str) -> bool:
    """Return whether a stage makes it: `${corpus}`, `${encoder}`, …"""
    return place.startswith("${")


def _check_arm(study: Study, arm: Arm) -> Iterator[str]:
    own, arms = arm.pretraining, {one.name: one for one in study.arms}
    if bool(arm.encoder) == bool(own) or arm.encoder.startswith("arm:"):
        forms = "a folder, a hub name, an arm of model/arms, random, half or layers:N"
        yield f"encoder: give {forms}, or else `pretraining` with its `shards`"
    if own != type(own)() and not own:
        yield "pretraining.shards: missing"
    references = {"architecture": arm.shaped_by, "teacher": arm.taught_by}
    references |= {f"pretraining.{budget}": getattr(own, budget) for budget in BUDGETS}
    for field, other in references.items():
        if other and other not in arms:
            yield f"{field}: no arm {other!r}; there are {'; '.join(arms)}"
            return
    if arm.is_baseline and arm.teacher:
        yield f"teacher: has no effect on {arm.encoder}"
    if arm.is_baseline and not any(arm.suits(task) for task in study.tasks):
        yield f"encoder: {arm.encoder} is for classification, and no task of the study is"
    if is_part_of_teacher(arm.encoder) and not arm.teacher:
        yield f"teacher: missing; {arm.encoder} is a part of one"
    if (arm.encoder == "random") != bool(arm.architecture):
        yield "architecture: belongs to `encoder: random`: a folder or arm:NAME"
    chain = [arm.name]
    while (teacher := arms[chain[-1]].taught_by) in arms and teacher not in chain:
        chain.append(teacher)
    if teacher == arm.name:
        yield f"teacher: the arm is taught by itself: {' ← '.join([*chain, teacher])}"
    if arm.shaped_by and arms[arm.shaped_by].is_without_folder:
        yield f"architecture: {arm.shaped_by!r} has no folder of its own"
    if own:
        yield from (f"pretraining.{mistake}" for mistake in _check_pretraining(arms, arm))


def _check_pretraining(arms: Mapping[str, Arm], arm: Arm) -> Iterator[str]:
    own = arm.pretraining
    texts = {name: format_value(value) for name, value in own.set.items()}
    if "seed" in own.set:
        yield "set.seed: the study says it for all arms: `pretraining_seeds`"
    if place := own.start_from:
        yield from (f"set.{n}: the shape is that of {place}" for n in SHAPE if n in own.set)
        if not is_made_later(place) and not find_kind(place):
            yield f"start_from: {place} does not name an encoder: write {FORMS}"
    try:
        if own.corpus:
            if not own.start_from:
                yield "start_from: missing; titles adapt a published encoder"
            for field in ("shards", *BUDGETS):
                if getattr(own, field):
                    yield f"{field}: has no effect with `corpus`"
            replace_settings([ContrastiveConfig()], texts, "pretraining")
            return
        apply_settings(RECIPES[own.recipe], texts)
        if not own.start_from:
            check_start_is_not_needed(texts)
    except ValueError as mistake:
        yield f"set: {mistake}"
    if own.same_flops_as and own.same_tokens_as:
        yield "same_flops_as: give it or same_tokens_as, not both"
    for budget in BUDGETS:
        if name := getattr(own, budget):
            other = arms[name].pretraining
            if name == arm.name or not other.shards or any(getattr(other, b) for b in BUDGETS):
                yield f"{budget}: {name!r} is no other arm that is pre-trained for steps of its own"


def _check_settings(study: Study) -> Iterator[str]:
    """Check what every cell puts together, and what is searched."""
    base = RECIPES[study.recipe].finetuning if study.recipe else FinetuningSettings()
    tasks = {f"tasks[{i}].settings": task for i, task in enumerate(study.tasks)}
    arms = {f"arms[{i}].settings": arm for i, arm in enumerate(study.arms)}
    for (of_task, task), (of_arm, arm) in itertools.product(tasks.items(), arms.items()):
        try:
            chosen = change_settings(base, join_settings(study, task, arm))
            if (known := TASKS.get(task.task)) and arm.suits(task):
                check_for_task(chosen, known, bool(arm.teacher))
        except UserError as mistake:
            name = mistake.field
            field = of_arm if name in arm.settings else "settings"
            field = of_task if name in {*task.settings} - {*arm.settings} else field
            yield f"{field}.{name}".rstrip(".") + f": {mistake.message}"
    distils = any(arm.teacher for arm in study.arms)
    for line in search.validate_space(study.search.space, distils):
        yield f"search.space.{line}"
    for name in study.search.space:
        setting = "learning_rates" if name == "learning_rate" else name
        layers = {field: arm.settings for field, arm in arms.items()}
        layers |= {field: task.settings for field, task in tasks.items()}
        for field, layer in layers.items():
            if setting in layer:
                yield f"search.space.{name}: {field}.{setting} would hold, not what is found"


def join_settings(study: Study, task: StudyTask, arm: Arm) -> dict[str, str]:
    """Return the settings of a cell, as text: what the study says of all holds least, then the
    task, then the arm.
    """
    together: dict[str, Any] = {**study.settings, **task.settings, **arm.settings}
    return {name: format_value(value) for name, value in together.items()}
