"""Classes in words: a YAML file that says each class of a task as writers would title it.

    late: [Arrived late, Still waiting for my parcel]
    broken: {phrases: [Broke after a week], share: 0.2}
    other: []

A class without phrases is said by its name. `share` is how many of the reviews are of the class,
which only answers without a label read. Loads no torch.
"""

from pathlib import PurePosixPath
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import refuse
from amazon_electra.beam_jobs.core.nesting import load_yaml
from amazon_electra.beam_jobs.core.settings import Settings, build_settings
from amazon_electra.model.finetuning.tasks import list_star_tasks
from amazon_electra.model.finetuning.tasks.corpus import LABEL

ROUNDED = 0.01
"""By so much all shares may miss 1."""
UNKNOWN = (
    "no label: accuracy unknown; label 50 reviews to know it (`amazon-electra suggest --random 50`)"
)


class SaidClass(Settings):
    """What says a class."""

    phrases: list[str] = Field(default=[])
    share: float | None = Field(default=None, gt=0, lt=1)


class ClassesInWords(Settings):
    """The classes of a task, in words."""

    task: str
    classes: dict[str, SaidClass] = Field(min_length=2)

    @field_validator("classes", mode="before")
    @classmethod
    def _take_lists(cls, classes: Any) -> Any:
        if not isinstance(classes, dict):
            raise ValueError("write a line for each class, CLASS: [PHRASE, PHRASE]")
        named = {str(name): one or [] for name, one in classes.items()}
        return {n: {"phrases": one} if isinstance(one, list) else one for n, one in named.items()}

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        given = [one.share for one in self.classes.values() if one.share is not None]
        is_whole = len(given) == len(self.classes)
        if sum(given) > 1 + ROUNDED or (is_whole and sum(given) < 1 - ROUNDED):
            raise ValueError(f"the shares add up to {sum(given):g}, not to 1")
        return self

    @property
    def phrases(self) -> dict[str, list[str]]:
        """The phrases of each class, its name where it has none."""
        return {name: one.phrases or [name] for name, one in self.classes.items()}

    @property
    def shares(self) -> list[float]:
        """The share of each class; those that are not given share the rest."""
        given = [one.share for one in self.classes.values()]
        rest = max(ROUNDED, 1 - sum(one or 0 for one in given)) / max(1, given.count(None))
        return [rest if one is None else one for one in given]


def read_classes(place: str) -> ClassesInWords:
    """Return what a YAML file says: of reason.yaml the classes of the label column `reason`, of
    polarity.yaml and stars.yaml those of these tasks. UserError names the file.
    """
    name = PurePosixPath(place).stem
    with refuse(OSError, ValueError, message="cannot be read: {}", field="classes", value=place):
        written = load_yaml(storage.read_bytes(place).decode("utf-8"))
        task = name if name in list_star_tasks() else f"{LABEL}{name}"
        return build_settings(ClassesInWords, {"task": task, "classes": written})
