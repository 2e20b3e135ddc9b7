"""What is wrong with a study, found before anything is started; each mistake is one line that
begins with its field.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import format_value, replace_settings
from amazon_electra.flows.configuration.form import SHAPE
from amazon_electra.flows.configuration.study_file import Arm, Pretraining, Study, StudyTask
from amazon_electra.model.config import FinetuningSettings
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
from amazon_electra.model.options import ContrastiveConfig
from amazon_electra.model.recipes import RECIPES, apply_settings, check_start_is_not_needed

NOT_THERE = {
    "shards.json": "is no folder of shards",
    "corpus.json": "is no corpus",
    "task.json": "is no fine-tuned model",
    "config.json": "is no model folder",
}
"""What a place without this file is not."""
REFERENCES = ("teacher", "architecture")
"""Fields of an arm that name another one, or a folder."""


def validate_study(study: Study) -> Iterator[str]:
    """Yield every mistake that the text alone shows."""
    yield from _find_duplicates(study)
    for i, arm in enumerate(study.arms):
        yield from (f"arms[{i}]: {mistake}" for mistake in _check_arm(study, arm))
    yield from _find_circles(study)
    yield from _check_tasks(study)
    yield from _check_settings(study)
    yield from _check_search(study)
    yield from _check_comparisons(study)


def find_missing_places(study: Study) -> Iterator[str]:
    """Yield folders and files that are not there, and data in which a task finds no example; places
    written `<name>` are made later.
    """
    for i, task in enumerate(study.tasks):
        if _is_made_later(task.data):
            continue
        if not Path(task.data).exists():
            yield f"tasks[{i}].data: {task.data}: no such file or folder"
            continue
        try:
            check_data(find_task(task.task, Path(task.data)), Path(task.data))
        except UserError as mistake:
            yield f"tasks[{i}]: {mistake}"
    for i, arm in enumerate(study.arms):
        yield from (f"arms[{i}].{mistake}" for mistake in _find_missing_places_of_arm(arm))


def _find_missing_places_of_arm(arm: Arm) -> Iterator[str]:
    """Yield what an arm names and is not there: a bare name of an encoder may be one on the hub,
    everything else is a folder.
    """
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
            folders.append((field, place, "config.json"))
    for field, place, file in folders:
        if place and not _is_made_later(place) and not (Path(place) / file).exists():
            hint = "; an arm of this study is written arm:NAME" if field in REFERENCES else ""
            yield f"{field}: {place} {NOT_THERE[file]} ({file} is missing){hint}"


def _is_made_later(place: str) -> bool:
    return place.startswith("<") and ">" in place


def _find_duplicates(study: Study) -> Iterator[str]:
    for field, what, named in (
        ("arms", "two arms have the same name", study.arms),
        ("tasks", "two tasks have the same name, give them a `title` each", study.tasks),
    ):
        counts = Counter(one.name for one in named)
        if several := [name for name, n in counts.items() if n > 1]:
            yield f"{field}: {what}: {', '.join(several)}"


def _check_arm(study: Study, arm: Arm) -> Iterator[str]:
    own = arm.pretraining
    if bool(arm.encoder) == bool(own):
        yield "give `encoder` or `pretraining`" + (", not both" if own else " (with its `shards`)")
    if arm.encoder.startswith("arm:"):
        yield (
            "encoder: arm:NAME is for `teacher` and `architecture`; "
            "give a folder, a hub name, random, half or layers:N"
        )
    if own != type(own)() and not own:
        yield "pretraining.shards: missing"
    names = {other.name for other in study.arms}
    references = {
        "architecture": arm.shaped_by,
        "teacher": arm.taught_by,
        "pretraining.same_flops_as": own.same_flops_as,
        "pretraining.same_tokens_as": own.same_tokens_as,
    }
    for field, other in references.items():
        if other and other not in names:
            known = "; ".join(arm.name for arm in study.arms)
            yield f"{field}: no arm {other!r}; its arms are {known}"
            return
    if arm.is_baseline:
        if arm.teacher:
            yield f"teacher: has no effect on `{arm.encoder}`; leave it out"
        if not any(arm.suits(task) for task in study.tasks):
            yield f"encoder: `{arm.encoder}` is for classification, and no task of the study is"
    if is_part_of_teacher(arm.encoder) and not arm.teacher:
        yield f"encoder: `{arm.encoder}` is a part of a teacher: give `teacher`"
    if (arm.encoder == "random") != bool(arm.architecture):
        yield "architecture: belongs to `encoder: random`" + (
            "; name a folder or arm:NAME" * (not arm.architecture)
        )
    if own:
        yield from _check_pretraining(study, arm)


def _check_pretraining(study: Study, arm: Arm) -> Iterator[str]:
    own = arm.pretraining
    if "seed" in own.set:
        yield "pretraining.set.seed: the study says it for all arms: write `pretraining_seeds`"
    if place := own.start_from:
        for name in SHAPE:
            if name in own.set:
                yield f"pretraining.set.{name}: the shape is that of {place}; leave it out"
        if not _is_made_later(place) and not find_kind(place):
            yield f"pretraining.start_from: {place} does not name an encoder: write {FORMS}"
    try:
        texts = {name: format_value(value) for name, value in own.set.items()}
        if own.corpus:
            yield from _check_adaptation(own, texts)
            return
        apply_settings(RECIPES[own.recipe], texts)
        if not own.start_from:
            check_start_is_not_needed(texts)
    except ValueError as mistake:
        yield f"pretraining.set: {mistake}"
    if own.same_flops_as and own.same_tokens_as:
        yield "pretraining: give same_flops_as or same_tokens_as, not both"
    for field in ("same_flops_as", "same_tokens_as"):
        if not (name := getattr(own, field)):
            continue
        other = next(other for other in study.arms if other.name == name).pretraining
        if not other.shards:
            yield f"pretraining.{field}: {name!r} is not pre-trained by the study"
        if name == arm.name or other.same_flops_as or other.same_tokens_as:
            yield f"pretraining.{field}: {name!r} must say its own steps, not take another arm's"


def _check_adaptation(own: Pretraining, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with an adaptation by contrast; UserError for a wrong setting."""
    if not own.start_from:
        yield "pretraining.start_from: missing; titles adapt a published encoder"
    for field in ("shards", "same_flops_as", "same_tokens_as"):
        if getattr(own, field):
            yield f"pretraining.{field}: has no effect with `corpus`; leave it out"
    replace_settings([ContrastiveConfig()], texts, "pretraining")


def _find_circles(study: Study) -> Iterator[str]:
    """Yield arms that teach each other, and architectures of arms that have none of their own."""
    arms = {arm.name: arm for arm in study.arms}
    for i, arm in enumerate(study.arms):
        chain = [arm.name]
        while (teacher := arms[chain[-1]].taught_by) and teacher not in chain:
            chain.append(teacher)
        if teacher == arm.name:
            yield f"arms[{i}].teacher: the arm is taught by itself: {' ← '.join([*chain, teacher])}"
        source = arm.shaped_by
        if source and arms[source].is_without_folder:
            yield (
                f"arms[{i}].architecture: {source!r} has no folder of its own; "
                "name an arm that has one"
            )


def _check_tasks(study: Study) -> Iterator[str]:
    for i, task in enumerate(study.tasks):
        try:
            if task.task not in TASKS and not task.task.startswith(corpus.LABEL):
                known = ", ".join([*sorted(TASKS), "label:COLUMN"])
                yield f"tasks[{i}].task: no task {task.task!r}; there are {known}"
        except UserError as mistake:
            yield f"tasks[{i}].task: {mistake.message}"


def _check_settings(study: Study) -> Iterator[str]:
    """Check each value by itself, then what every cell puts together; last yield the tasks whose
    cells are those of another one, whatever they are called: such a task would count twice.
    """
    base = RECIPES[study.recipe].finetuning if study.recipe else FinetuningSettings()
    for field, layer in [("settings", study.settings), *_list_own_settings(study)]:
        for name, value in layer.items():
            yield from _check_values(base, f"{field}.{name}", {name: value})
    known: dict[Any, StudyTask] = {}
    for i, task in enumerate(study.tasks):
        cells = []
        for arm in study.arms:
            together = {**study.settings, **task.settings, **arm.settings}
            if not arm.suits(task):
                continue
            about = f"{arm.name} on {task.name}"
            yield from _check_values(base, about, together, TASKS.get(task.task), arm)
            with suppress(UserError):  # reported just now
                cells.append(_resolve_settings(base, together))
        other = known.setdefault((task.task, task.data, tuple(cells)), task)
        if other is not task:
            yield (
                f"tasks[{i}]: {task.name!r} is {other.name!r} again, with the same data and "
                "settings: leave one of them out"
            )


def _list_own_settings(study: Study) -> list[tuple[str, Mapping[str, Any]]]:
    """Return what arms and tasks say for themselves, each with its field."""
    arms = [(f"arms[{i}].settings", arm.settings) for i, arm in enumerate(study.arms)]
    return [*arms, *((f"tasks[{i}].settings", t.settings) for i, t in enumerate(study.tasks))]


def _resolve_settings(base: FinetuningSettings, settings: Mapping[str, Any]) -> FinetuningSettings:
    """Return the settings of fine-tuning with these in place of their own."""
    return change_settings(base, {name: format_value(v) for name, v in settings.items()})


def _check_values(
    base: FinetuningSettings,
    field: str,
    settings: Mapping[str, Any],
    task: Task | None = None,
    arm: Arm | None = None,
) -> Iterator[str]:
    """Yield what the settings ask that fine-tuning, or the task, does not take."""
    try:
        chosen = _resolve_settings(base, settings)
        if task and arm:
            check_for_task(chosen, task, bool(arm.teacher))
    except UserError as mistake:
        yield f"{field}: {mistake.message}"


def _check_search(study: Study) -> Iterator[str]:
    distils = any(arm.teacher for arm in study.arms)
    yield from (
        f"search.space.{mistake}" for mistake in search.validate_space(study.search.space, distils)
    )
    for name in study.search.space:
        setting = "learning_rates" if name == "learning_rate" else name
        for field, layer in _list_own_settings(study):
            if setting in layer:
                yield (
                    f"search.space.{name}: {field}.{setting} would hold, not what is found: "
                    "leave one of them out"
                )


def _check_comparisons(study: Study) -> Iterator[str]:
    arms = [arm.name for arm in study.arms]
    for i, (a, b) in enumerate(study.comparisons):
        if unknown := [name for name in (a, b) if name not in arms]:
            yield f"comparisons[{i}]: no arm {unknown[0]!r}; there are {', '.join(arms)}"
        if a == b:
            yield f"comparisons[{i}]: {a!r} is compared with itself"
    if len(set(study.comparisons)) < len(study.comparisons):
        yield "comparisons: a pair is named twice"
