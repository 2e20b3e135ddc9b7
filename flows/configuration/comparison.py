"""The section of a form that says what the new encoder is compared with, and the one that says
whether it may become champion.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from beam_jobs.core.settings import Settings
from flows.configuration.addresses import Address
from flows.configuration.sections import MOST_AT_ONCE
from flows.configuration.study_file import Seed
from model.finetuning.tasks import corpus

Arm = Literal["pre-trained", "random", "champion", "base", "published", "origin"]
OF_CORPUS = tuple(task.name for task in corpus.TASKS)


def _check_task(name: str) -> str:
    if name not in OF_CORPUS:
        raise ValueError(f"{name}: a run has the tasks of a corpus, {', '.join(OF_CORPUS)}")
    return name


Task = Annotated[
    str, AfterValidator(_check_task), Field(json_schema_extra={"enum": list(OF_CORPUS)})
]
"""A task that needs no data but the dump's; studies take every task."""
HUB_NAME = r"[\w-][\w.-]*(/[\w-][\w.-]*)?"


class Finetuning(Settings):
    """The study: arms × tasks × seeds, each with the same care."""

    arms: list[Arm] = Field(
        default=[],
        description="Where the encoder comes from; champion: the one in the MLflow registry; base: "
        "what a new dump was added to; published: the one named below; origin: the one that "
        "pre-training starts from, as it is. Empty: pre-trained, and what it is to beat: origin "
        "where there is one, else random",
    )
    published: Address = Field(
        default="",
        description="Of the arm `published`: a transformers folder, or a hub name in the cache",
    )
    tasks: list[Task] = Field(
        default=["polarity", "stars"],
        min_length=1,
        description="polarity: 1–2 against 4–5 stars; stars: 1 to 5",
    )
    seeds: list[Seed] = Field(default=[0, 1, 2], min_length=1, description="One fine-tuning each")
    learning_rates: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        default=[], description="Each is tried and the best on dev kept; empty: as the preset says"
    )
    at_once: int = Field(
        default=2,
        ge=1,
        le=MOST_AT_ONCE,
        description="Fine-tunings that run side by side and share the cores",
    )

    @field_validator("arms", "tasks", "seeds", "learning_rates")
    @classmethod
    def _refuse_duplicates(cls, chosen: list[Any]) -> list[Any]:
        """Refuse what is named twice: a seed counted twice would make intervals narrower than they
        are.
        """
        for value in chosen:
            if chosen.count(value) > 1:
                raise ValueError(f"{value} is named twice")
        return chosen

    @field_validator("published")
    @classmethod
    def _check_published(cls, name: str) -> str:
        folder = Path(name).expanduser()
        if name.startswith(("/", ".", "~")) and not folder.is_dir():
            raise ValueError(f"no folder {name}")
        if name and folder.is_dir() and not (folder / "config.json").exists():
            raise ValueError(f"{name} is no transformers folder, it has no config.json")
        if name and not folder.is_dir() and not re.fullmatch(HUB_NAME, name):
            raise ValueError(
                f"{name} is no folder, and no name on the hub: those are like google/electra-small"
            )
        return name

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        self.check_arms()
        return self

    def check_arms(self) -> None:
        """Raise ValueError where an arm, or all of them, would have no encoder."""
        if "published" in self.arms and not self.published:
            raise ValueError(
                "finetuning.published is empty: name the model of the arm `published`, or leave it "
                "out"
            )
        if self.arms and {"champion", "base"}.issuperset(self.arms):
            raise ValueError(
                "finetuning.arms: champion and base may be nobody; name pre-trained, random or "
                "published"
            )


class Comparison(Finetuning):
    """The study: the new model against champion or base and a published one, on old test sets."""

    arms: list[Arm] = Field(
        default=["pre-trained", "champion", "published"],
        min_length=1,
        description="pre-trained: the new model; champion: the one in the registry, the base where "
        "there is none; "
        "published: the one named below, if one is",
    )

    def check_arms(self) -> None:
        """Raise ValueError where `published` is the only arm and names nothing.

        There always is a champion, the base if no other; a published model need not be.
        """
        if self.arms == ["published"] and not self.published:
            raise ValueError("finetuning.published is empty: name the model of the arm `published`")


class Promotion(Settings):
    """Whether the model of this run may become the champion of the MLflow registry."""

    mode: Literal["off", "automatic", "ask"] = Field(
        default="off",
        description="Registered, the model is kept for `score`. off: not registered; automatic: "
        "champion by the rule below; ask: a person approves",
    )
    tasks: list[Task] = Field(
        default=["polarity"],
        min_length=1,
        description="It must be better than the champion on each of these",
    )
    margin: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="Points of accuracy; more than 0: not worse by more than that is enough",
    )


def check_promotion(arms: list[Arm], study: Finetuning, promotion: Promotion) -> None:
    """Raise ValueError where the study could not say what the promotion asks: it would be known
    only at the end.
    """
    if promotion.mode == "off":
        return
    if "pre-trained" not in arms:
        raise ValueError(f"promotion.mode={promotion.mode} needs pre-trained among finetuning.arms")
    if missing := [task for task in promotion.tasks if task not in study.tasks]:
        raise ValueError(f"promotion.tasks: {', '.join(missing)} is not among finetuning.tasks")
