"""A study as it is written: arms × tasks × seeds × settings. The file (YAML) and the form in the Prefect UI share these
models; nothing is None in them, for a form cannot say that.
"""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.command import UserMistake
from model.finetuning.config import FinetuningSettings

SHIPPED = Path(__file__).parent / "studies"
VARIABLE = re.compile(r"\$\{(\w+)\}")


class Part(BaseModel):
    """An unknown field is an error, not a silent typo."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Pretraining(Part):
    """How an arm's encoder is pre-trained by the study."""

    shards: str = Field(default="", description="Folder of the shards; empty: this arm is not pre-trained here")
    preset: str = Field(default="tiny", description="Size of the encoder")
    set: dict[str, Any] = Field(default={}, description="Any field of PretrainingConfig or Architecture")
    same_flops_as: str = Field(
        default="", description="The arm whose pre-training FLOPs this one gets; its steps follow"
    )
    same_tokens_as: str = Field(
        default="", description="The arm as many of whose tokens this one sees: other shards may be filled less"
    )

    def __bool__(self) -> bool:
        return bool(self.shards)


class Arm(Part):
    """A way to get an encoder, and the settings it is fine-tuned with where they differ."""

    name: str = Field(min_length=1, description="As the report calls it")
    encoder: str = Field(
        default="",
        description="Folder or hub name, `random`, or `half` of the teacher; empty where the study pre-trains it",
    )
    architecture: str = Field(
        default="", description="For `random`: a folder, or `arm:NAME` for the one of another arm"
    )
    pretraining: Pretraining = Pretraining()
    teacher: str = Field(
        default="", description="`arm:NAME`: distilled from that arm's model of the same task and seed"
    )
    settings: dict[str, Any] = Field(default={}, description="Of fine-tuning, where this arm differs")
    training_data: Literal["", "known", "unknown"] = Field(
        default="",
        description="Whether it is known what its encoder was trained on, so that test texts were withheld; empty: "
        "known for what is pre-trained here or random",
    )


class StudyTask(Part):
    """What the encoders are fine-tuned for and judged by."""

    task: str = Field(min_length=1, description="polarity, stars, sst-2, imdb, …: model/finetuning/tasks/README.md")
    data: str = Field(min_length=1, description="Its folder or file")
    title: str = Field(default="", description="As the report calls it, where a task occurs twice")
    settings: dict[str, Any] = Field(default={}, description="Of fine-tuning, where this task differs")

    @property
    def name(self) -> str:
        return self.title or self.task


class Search(Part):
    """Settings searched on dev by Optuna before the cells are run; the best ones are used for every arm alike."""

    trials: int = Field(default=20, ge=1, le=1000, description="Fine-tunings tried; bad ones are pruned")
    space: dict[str, Any] = Field(
        default={}, description="Setting → list of choices, or {low, high, log}; empty: no search"
    )

    def __bool__(self) -> bool:
        return bool(self.space)


class Study(Part):
    """Arms × tasks × seeds × settings."""

    title: str = Field(default="Study", description="As the report and the run are called")
    question: str = Field(default="Which arm is better?", description="What the report answers")
    preset: str = Field(default="", description="Whose fine-tuning settings hold where nothing else is said")
    seeds: list[int] = Field(default=[0, 1, 2], description="One fine-tuning each")
    arms: list[Arm] = Field(default=[], description="Ways to get an encoder")
    tasks: list[StudyTask] = Field(default=[], description="What they are judged by")
    comparisons: list[tuple[str, str]] = Field(
        default=[], description="Pairs of arms; empty: the first with each of the others"
    )
    settings: dict[str, Any] = Field(default={}, description="Of fine-tuning, for all arms and tasks")
    grid: dict[str, list[Any]] = Field(
        default={}, description="Setting → values; every arm is run with every combination"
    )
    search: Search = Search()
    latency: bool = Field(default=False, description="Measure size, speed and memory of every arm")

    def arm(self, name: str) -> Arm:
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise UserMistake(f"study {self.title!r}: no arm {name!r}; its arms are {', '.join(a.name for a in self.arms)}")


def read(name_or_file: str, variables: Mapping[str, str], changes: Mapping[str, str] | None = None) -> Study:
    """A shipped study by name or a YAML file; `${name}` in it stands for a variable.

    `changes`: `seeds`, and settings that hold for all arms and tasks that have none of their own, as text.
    """
    file = found(name_or_file)
    return from_text(file.read_text(encoding="utf-8"), str(file), variables, changes)


def from_text(text: str, where: str, variables: Mapping[str, str], changes: Mapping[str, str] | None = None) -> Study:
    """As `read`; `where` is what messages call the text."""
    import yaml

    try:
        content = yaml.safe_load(_filled(text, variables, where))
    except yaml.YAMLError as error:
        raise UserMistake(f"{where}: not YAML: {error}") from error
    if isinstance(content, dict) and changes:
        content = _changed(content, changes)
    return parse(content, where)


def to_text(study: Study) -> str:
    """YAML that reads back as the same study."""
    import yaml

    return yaml.safe_dump(study.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True)


def found(name_or_file: str) -> Path:
    file = Path(name_or_file).expanduser()
    if not file.is_file():
        file = SHIPPED / f"{name_or_file}.yaml"
    if not file.is_file():
        raise UserMistake(f"{name_or_file}: neither a file nor one of the shipped studies: {', '.join(shipped())}")
    return file.resolve()


def shipped() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def variables_in(text: str) -> list[str]:
    """What a study needs to be told."""
    return sorted(set(VARIABLE.findall(text)))


def _filled(text: str, variables: Mapping[str, str], where: str) -> str:
    missing = [name for name in variables_in(text) if name not in variables]
    if missing:
        raise UserMistake(f"{where}: give {', '.join(f'--var {name}=…' for name in missing)}")
    return VARIABLE.sub(lambda match: variables[match.group(1)], text)


def _changed(content: dict[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    settings = dict(content.get("settings") or {})
    for name, text in changes.items():
        if name == "seeds":
            try:
                content = content | {"seeds": [int(part) for part in text.replace(",", " ").split()]}
            except ValueError:
                raise UserMistake(f"seeds={text}: expected whole numbers, such as 0,1,2") from None
        else:
            value = FinetuningSettings.parse(name, text)
            settings[name] = list(value) if isinstance(value, tuple) else value
    return content | {"settings": settings}


def parse(content: Any, where: str) -> Study:
    """From plain dictionaries, with the field named where one is wrong."""
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise UserMistake("; ".join(_told(problem, where) for problem in error.errors()[:3])) from None
    _check(study, where)
    return study


def _told(problem: Any, where: str) -> str:
    """One of pydantic's errors as a line: `FILE: arms[0].speed: no such field`."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    said = "no such field" if problem["type"] == "extra_forbidden" else str(problem["msg"]).lower()
    return f"{where}: {place}: {said}" if place else f"{where}: {said}"


def _check(study: Study, where: str) -> None:
    if not study.arms or not study.tasks or not study.seeds:
        raise UserMistake(f"{where}: a study needs at least one arm, one task and one seed")
    names = [arm.name for arm in study.arms]
    if len(set(names)) < len(names):
        raise UserMistake(f"{where}: two arms have the same name: {', '.join(sorted(names))}")
    for i, arm in enumerate(study.arms):
        if not arm.encoder and not arm.pretraining:
            raise UserMistake(f"{where}: arms[{i}]: give `encoder` or `pretraining`")
        references = (
            architecture_of(arm),
            teacher_of(arm),
            arm.pretraining.same_flops_as,
            arm.pretraining.same_tokens_as,
        )
        for other in filter(None, references):
            study.arm(other)
    combined = [arm.name for arm in with_grid(study)]
    for name in (name for pair in study.comparisons for name in pair):
        if not any(one == name or one.startswith(f"{name}, ") for one in combined):
            raise UserMistake(f"{where}: comparisons: no arm {name!r}")
    for name in (*study.settings, *study.grid, *(n for a in study.arms for n in a.settings)):
        if name not in FinetuningSettings.__dataclass_fields__:
            raise UserMistake(f"{where}: settings: no setting {name!r}")


def _named(reference: str) -> str:
    return reference.removeprefix("arm:") if reference.startswith("arm:") else ""


def teacher_of(arm: Arm) -> str:
    """The name of the arm that teaches, or nothing."""
    return _named(arm.teacher)


def architecture_of(arm: Arm) -> str:
    """The name of the arm whose architecture a random encoder has, or nothing."""
    return _named(arm.architecture)


def with_grid(study: Study) -> list[Arm]:
    """Arms × combinations of the grid, each an arm of its own named after its values."""
    if not study.grid:
        return list(study.arms)
    names = list(study.grid)
    return [
        arm.model_copy(
            update={
                "name": ", ".join([arm.name, *(f"{n}={as_text(v)}" for n, v in zip(names, values, strict=True))]),
                "settings": {**arm.settings, **dict(zip(names, values, strict=True))},
            }
        )
        for arm in study.arms
        for values in itertools.product(*study.grid.values())
    ]


def places(study: Study) -> list[str]:
    """Every folder and file that the study names, and hub names: what its results depend on besides the file."""
    named = [task.data for task in study.tasks]
    for arm in study.arms:
        named += [arm.encoder, arm.architecture, arm.pretraining.shards]
    return sorted({name for name in named if name and name not in ("random", "half") and not name.startswith("arm:")})


def as_text(value: Any) -> str:
    """As `--set` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
