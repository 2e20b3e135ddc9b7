"""The config of a fine-tuning, and the request that it makes of an arm. Loads no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.settings import MAX_SEED, Settings
from amazon_electra.model.arms import find_arm, list_arms
from amazon_electra.model.config import TASK, FinetuningSettings, RecipeName
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.request import Request, Start, change_settings, check_for_task
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.finetuning.tasks.corpus import LABEL
from amazon_electra.model.recipes import RECIPES


class FinetuneConfig(Settings, use_attribute_docstrings=True):
    """Settings of a fine-tuning."""

    task: str = Field(description=TASK.documentation)
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """decides the head, the order, dropout and the training examples"""
    recipe: RecipeName | None = None
    """take the fine-tuning settings of this recipe as defaults"""
    arm: str = "finetuned"
    """what is fitted: the name of an arm (model/arms), such as finetuned, a network that is trained
    whole"""
    start: str = Field(default="trained", pattern=r"^(trained|random|half|layers:[1-9]\d*)$")
    """weights that the network begins with: trained (the encoder's), random, half or layers:N
    (layers of the teacher)"""
    phrases: dict[str, list[str]] | None = None
    """class → short texts that say it, as a writer titles a review, in place of the task's own; {}:
    none"""
    settings: dict[str, str] = Field(default={})
    """what differs from the recipe: fields of FinetuningSettings"""
    others: ClassVar = (FinetuningSettings,)

    def resolve_settings(self) -> FinetuningSettings:
        """Return the settings of the recipe, changed by its own."""
        base = RECIPES[self.recipe].finetuning if self.recipe else FinetuningSettings()
        return change_settings(base, self.settings)


def make_request(
    config: FinetuneConfig,
    data: Path,
    *,
    encoder: str | Path | None = None,
    architecture: str | Path | None = None,
    teacher: str | Path | None = None,
    parts: Sequence[str | Path] = (),
    cache: str | Path | None = None,
) -> Request:
    """Return the request with the settings of the recipe, changed by those of the config."""
    settings = config.resolve_settings()
    task = give_phrases(find_task(config.task, data), config.phrases)
    reads_encoder = find_arm(config.arm).reads_encoder
    is_given = encoder is not None or not reads_encoder or config.start != "trained"
    require(is_given, f"the arm {config.arm} needs one", "encoder")
    start = str(encoder) if config.start == "trained" else config.start
    begun = Start(
        start if reads_encoder else "",
        str(architecture) if architecture else None,
        Path(teacher) if teacher else None,
        config.arm,
        tuple(map(Path, parts)),
    )
    return Request(begun, task, data, settings, config.seed, Path(cache) if cache else None)


def give_phrases(task: Task, phrases: Mapping[str, Sequence[str]] | None) -> Task:
    """Return the task with these phrases of its classes; a class that has none is said by its name.
    UserError for a class that the task lacks.
    """
    if phrases is None:
        return task
    for name in phrases:
        known = ", ".join(task.labels)
        require(name in task.labels, f"no class of {task.name}, which has {known}", "phrases", name)
    said = tuple(tuple(phrases.get(label) or (label,)) for label in task.labels)
    return replace(task, phrases=said if phrases else ())


def split_arm(text: str) -> tuple[str, str]:
    """Return arm and encoder of `ARM:ENCODER`, or of an arm alone; without one "" and the text."""
    name, colon, encoder = text.partition(":")
    arm = list_arms().get(name)
    return (name, encoder) if arm and arm.reads_encoder == bool(colon) else ("", text)


def check_request(request: Request) -> None:
    """Raise a UserError for what can be refused before anything is read."""
    check_for_task(request.settings, request.task, request.start.teacher is not None)
    arm, teacher = find_arm(request.start.arm), request.start.teacher
    task, selection = request.task, request.settings.selection
    why = f"is not for {task.name}, which is {task.shape}"
    require(task.shape in arm.shapes, why, "arm", arm.name)
    is_corpus = task.name.startswith(LABEL) or bool(task.stars)
    require(is_corpus or selection == "dev", "is for a corpus: use dev", "selection", selection)
    require(arm.combines or not request.start.parts, f"have no effect on {arm.name}", "parts")
    require(arm.settings is None or not teacher, f"has no effect on {arm.name}", "teacher", teacher)
