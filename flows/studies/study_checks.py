"""What is wrong with a study, found before anything is started; each mistake is one line that
begins with its field.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import format_value, replace_settings
from amazon_electra.flows.configuration.form import SHAPE
from amazon_electra.flows.configuration.study_file import Arm, Study
from amazon_electra.model.config import ContrastiveConfig, FinetuningSettings
from amazon_electra.model.encoders.places import FORMS, find_kind
from amazon_electra.model.finetuning import search
from amazon_electra.model.finetuning.examples import Task
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
    yield from _check_search(study)
    for i, pair in enumerate(study.comparisons):
        if unknown := [name for name in pair if name not in arms]:
            yield f"comparisons[{i}]: no arm {unknown[0]!r}; there are {', '.join(arms)}"
        if pair[0] == pair[1] or study.comparisons.index(pair) < i:
            yield f"comparisons[{i}]: {' and '.join(pair)}: the same arm, or the same pair, twice"


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
    own, names = arm.pretraining, [one.name for one in study.arms]
    if bool(arm.encoder) == bool(own) or arm.encoder.startswith("arm:"):
        forms = "a folder, a hub name, an arm of model/arms, random, half or layers:N"
        yield f"encoder: give {forms}, or else `pretraining` with its `shards`"
    if own != type(own)() and not own:
        yield "pretraining.shards: missing"
    references = {
        "architecture": arm.shaped_by,
        "teacher": arm.taught_by,
        **{f"pretraining.{budget}": getattr(own, budget) for budget in BUDGETS},
    }
    for field, other in references.items():
        if other and other not in names:
            yield f"{field}: no arm {other!r}; there are {'; '.join(names)}"
            return
    if arm.is_baseline and arm.teacher:
        yield f"teacher: has no effect on {arm.encoder}"
    if arm.is_baseline and not any(arm.suits(task) for task in study.tasks):
        yield f"encoder: {arm.encoder} is for classification, and no task of the study is"
    if is_part_of_teacher(arm.encoder) and not arm.teacher:
        yield f"teacher: missing; {arm.encoder} is a part of one"
    if (arm.encoder == "random") != bool(arm.architecture):
        yield "architecture: belongs to `encoder: random`: a folder or arm:NAME"
    arms = {one.name: one for one in study.arms}
    chain = [arm.name]
    while (teacher := arms[chain[-1]].taught_by) in arms and teacher not in chain:
        chain.append(teacher)
    if teacher == arm.name:
        yield f"teacher: the arm is taught by itself: {' ← '.join([*chain, teacher])}"
    if arm.shaped_by and arms[arm.shaped_by].is_without_folder:
        yield f"architecture: {arm.shaped_by!r} has no folder of its own"
    if own:
        yield from (f"pretraining.{mistake}" for mistake in _check_pretraining(study, arm))


def _check_pretraining(study: Study, arm: Arm) -> Iterator[str]:
    own = arm.pretraining
    texts = {name: format_value(value) for name, value in own.set.items()}
    if "seed" in own.set:
        yield "set.seed: the study says it for all arms: `pretraining_seeds`"
    if place := own.start_from:
        yield from (f"set.{n}: the shape is that of {place}" for n in SHAPE if n in own.set)
        if not is_made_later(place) and not find_kind(place):
            yield f"start_from: {place} does not name an encoder: write {FORMS}"
    if own.corpus:
        if not own.start_from:
            yield "start_from: missing; titles adapt a published encoder"
        for field in ("shards", *BUDGETS):
            if getattr(own, field):
                yield f"{field}: has no effect with `corpus`"
    try:
        if own.corpus:
            replace_settings([ContrastiveConfig()], texts, "pretraining")
            return
        apply_settings(RECIPES[own.recipe], texts)
        if not own.start_from:
            check_start_is_not_needed(texts)
    except ValueError as mistake:
        yield f"set: {mistake}"
    budgets = {budget: name for budget in BUDGETS if (name := getattr(own, budget))}
    for budget, name in budgets.items():
        other = next(other for other in study.arms if other.name == name).pretraining
        if name == arm.name or not other.shards or any(getattr(other, b) for b in BUDGETS):
            yield f"{budget}: {name!r} is no other arm that is pre-trained for steps of its own"
    if len(budgets) > 1:
        yield f"{BUDGETS[0]}: give it or {BUDGETS[1]}, not both"


def _check_settings(study: Study) -> Iterator[str]:
    """Check each value by itself, then what every cell puts together."""
    base = RECIPES[study.recipe].finetuning if study.recipe else FinetuningSettings()
    for field, layer in [("settings", study.settings), *_list_own_settings(study)]:
        for name, value in layer.items():
            yield from _check_values(base, f"{field}.{name}", {name: value})
    for i, task in enumerate(study.tasks):
        for arm in (arm for arm in study.arms if arm.suits(task)):
            together = {**study.settings, **task.settings, **arm.settings}
            field = f"tasks[{i}].settings, with those of {arm.name}"
            yield from _check_values(base, field, together, TASKS.get(task.task), arm)


def _list_own_settings(study: Study) -> list[tuple[str, Mapping[str, Any]]]:
    """Return what arms and tasks say for themselves, each with its field."""
    arms = [(f"arms[{i}].settings", arm.settings) for i, arm in enumerate(study.arms)]
    return [*arms, *((f"tasks[{i}].settings", t.settings) for i, t in enumerate(study.tasks))]


def _check_values(
    base: FinetuningSettings,
    field: str,
    settings: Mapping[str, Any],
    task: Task | None = None,
    arm: Arm | None = None,
) -> Iterator[str]:
    """Yield what the settings ask that fine-tuning, or the task, does not take."""
    try:
        texts = {name: format_value(value) for name, value in settings.items()}
        chosen = change_settings(base, texts)
        if task and arm:
            check_for_task(chosen, task, bool(arm.teacher))
    except UserError as mistake:
        yield f"{field}: {mistake if task else mistake.message}"


def _check_search(study: Study) -> Iterator[str]:
    distils = any(arm.teacher for arm in study.arms)
    for mistake in search.validate_space(study.search.space, distils):
        yield f"search.space.{mistake}"
    for name in study.search.space:
        setting = "learning_rates" if name == "learning_rate" else name
        for field, layer in _list_own_settings(study):
            if setting in layer:
                yield f"search.space.{name}: {field}.{setting} would hold, not what is found"
