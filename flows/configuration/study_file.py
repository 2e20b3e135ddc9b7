"""A study as it is written: arms × tasks × seeds × settings in a YAML file; and the form in the
Prefect UI that names such a file.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.configuration.addresses import Address
from amazon_electra.model.arms import find_arm
from amazon_electra.model.config import FinetuningSettings, RecipeName
from amazon_electra.model.finetuning.config import split_arm
from amazon_electra.model.finetuning.request import is_part_of_teacher
from amazon_electra.model.finetuning.tasks import TASKS

Seed = Annotated[int, Field(ge=0, lt=2**31)]


def refuse_duplicates(chosen: list[Any]) -> list[Any]:
    """Raise ValueError for what is named twice: a seed counted twice would make intervals narrower
    than they are.
    """
    for value in chosen:
        if chosen.count(value) > 1:
            raise ValueError(f"{value} is named twice")
    return chosen


Seeds = Annotated[list[Seed], AfterValidator(refuse_duplicates)]
MAX_AT_ONCE = 64
"""Jobs that a user may have side by side."""


class Pretraining(Settings, use_attribute_docstrings=True):
    """How an arm's encoder is pre-trained by the study."""

    shards: str = ""
    """Folder of the shards; empty: this arm is not pre-trained here"""
    corpus: str = ""
    """In the place of shards the folder of a corpus, or ${corpus}: the encoder is adapted to its
    titles and bodies by contrast"""
    recipe: RecipeName = "sample"
    """Size of the encoder"""
    start_from: str = ""
    """Published encoder whose weights and shape to start from: a folder, a name on the hub,
    package:MODULE, or ${origin}"""
    set: dict[str, Any] = Field(default={})
    """Any field of PretrainingConfig or Architecture; with `corpus` any of ContrastiveConfig"""
    same_flops_as: str = ""
    """Name of the arm whose pre-training FLOPs this one gets; the steps follow from them"""
    same_tokens_as: str = ""
    """Name of the arm whose number of tokens this one sees, although its shards may be less full"""

    def __bool__(self) -> bool:
        return bool(self.shards or self.corpus)


class Arm(Settings, use_attribute_docstrings=True):
    """A way to get an encoder, and the settings it is fine-tuned with where they differ."""

    name: str = Field(min_length=1)
    """Its name in the report"""
    encoder: str = ""
    """Folder or hub name, package:MODULE, ${origin}, `random`, `half` or
    `layers:N` of the teacher; or an arm (model/arms), with a colon and the encoder if it reads one,
    such as `joined:${origin}`; empty where the study pre-trains it"""
    architecture: str = ""
    """For `random`: a folder, or `arm:NAME` for that of another arm"""
    pretraining: Pretraining = Pretraining()
    teacher: str = ""
    """`arm:NAME`: distil from that arm's model of the same task and seed; or a fine-tuned folder"""
    settings: dict[str, Any] = Field(default={})
    """Settings of fine-tuning that differ in this arm"""

    @property
    def taught_by(self) -> str:
        """Return the name of the arm that teaches, or an empty text."""
        return self.teacher.removeprefix("arm:") if self.teacher.startswith("arm:") else ""

    @property
    def shaped_by(self) -> str:
        """Return the name of the arm whose architecture a random encoder has, or an empty text."""
        named = self.architecture
        return named.removeprefix("arm:") if named.startswith("arm:") else ""

    @property
    def is_without_folder(self) -> bool:
        """Return whether the encoder is made anew: random, or of layers of its teacher; or there is
        none, as of TF-IDF.
        """
        is_new = self.encoder == "random" or is_part_of_teacher(self.encoder)
        return is_new or bool(self.encoder and not self.place)

    @property
    def method(self) -> str:
        """Return the name in model/arms of what is fitted."""
        return split_arm(self.encoder)[0] or "finetuned"

    @property
    def place(self) -> str:
        """Return the encoder without the arm before it; empty where that reads none."""
        return split_arm(self.encoder)[1]

    @property
    def is_baseline(self) -> bool:
        """Return whether it takes seconds, as logistic regression does."""
        return find_arm(self.method).is_cheap

    def suits(self, task: "StudyTask") -> bool:
        """Return whether the arm is run on a task: one of a shape that it is for."""
        known = TASKS.get(task.task)
        return known is None or known.shape in find_arm(self.method).shapes


class StudyTask(Settings, use_attribute_docstrings=True):
    """What the encoders are fine-tuned for and judged by."""

    task: str = Field(min_length=1)
    """polarity, stars, sst-2, …: model/finetuning/tasks/README.md"""
    data: str = Field(min_length=1)
    """Its folder or file"""
    title: str = ""
    """Its name in the report, if a task occurs twice"""
    settings: dict[str, Any] = Field(default={})
    """Settings of fine-tuning that differ in this task"""

    @property
    def name(self) -> str:
        return self.title or self.task


class Search(Settings, use_attribute_docstrings=True):
    """Settings searched on dev by Optuna before the cells are run, for each arm by itself."""

    trials: int = Field(default=20, ge=1, le=1000)
    """Fine-tunings to try; bad ones are pruned"""
    space: dict[str, Any] = Field(default={})
    """Setting → list of choices, or {low, high, log}; empty: no search"""


class Study(Settings, use_attribute_docstrings=True):
    """Arms × tasks × seeds × settings."""

    title: str = "Study"
    """Title of the report and of the run"""
    question: str = "Which arm is better?"
    """The question that the report answers"""
    recipe: RecipeName | None = None
    """Recipe whose fine-tuning settings are the defaults"""
    seeds: Seeds = Field(default=[0, 1, 2], min_length=1)
    """One fine-tuning for each"""
    pretraining_seeds: Seeds = Field(default=[0], min_length=1)
    """Every arm that the study pre-trains is pre-trained once with each, and fine-tuned with all
    seeds"""
    arms: list[Arm] = Field(min_length=1)
    """Ways to get an encoder; the first one is compared with each of the others"""
    tasks: list[StudyTask] = Field(min_length=1)
    """What the arms are judged by"""
    settings: dict[str, Any] = Field(default={})
    """Settings of fine-tuning for all arms and tasks"""
    search: Search = Search()


class StudyChanges(Settings, use_attribute_docstrings=True):
    """What may be changed of a study, besides the settings of fine-tuning."""

    seeds: list[Seed]
    """One fine-tuning for each"""
    pretraining_seeds: list[Seed]
    """One pre-training for each"""
    steps: int = Field(ge=1)
    """Steps of the arms' pre-trainings"""


class StudyChoice(Settings, use_attribute_docstrings=True):
    """Which comparison is made."""

    others: ClassVar = (StudyChanges, FinetuningSettings)

    file: str = Field(default="losses", min_length=1)
    """A study file (YAML), or a shipped one: encoders, labels, losses, objective or search"""
    settings: dict[str, str] = Field(default={})
    """Settings to use instead of those in the file for all arms and tasks, for example
    {"seeds": "0,1", "steps": "500"}"""
    general_text: list[Address] = Field(default=[])
    """Files of text other than reviews, for studies that also pre-train on such text"""
    at_once: int = Field(default=2, ge=1, le=MAX_AT_ONCE)
    """Cells that run side by side and share the cores"""

    @property
    def title(self) -> str:
        return f"study {Path(self.file).stem}"
