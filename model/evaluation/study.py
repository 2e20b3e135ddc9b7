"""A study: arms × tasks × seeds × settings, read from YAML, expanded into cells that are cached by what they depend on.

Pure: nothing here starts a job. model/study.py runs the cells; the graph may run them its own way.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.finetuning.config import FinetuningSettings

VERSION = 1
"""Of what a cell computes; raised when results of the same question would change."""
SHIPPED = Path(__file__).parent / "studies"
VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Pretraining:
    """The arm's encoder is pre-trained by the study."""

    shards: str
    preset: str = "tiny"
    set: Mapping[str, Any] = field(default_factory=dict)
    """Any field of PretrainingConfig or Architecture."""
    same_flops_as: str | None = None
    """The arm whose pre-training FLOPs this one gets; its steps follow."""
    same_tokens_as: str | None = None
    """The arm as many of whose tokens this one sees: other shards may be filled less."""


@dataclass(frozen=True)
class Arm:
    """A way to get an encoder, and the settings it is fine-tuned with where they differ."""

    name: str
    encoder: str = ""
    """Folder or hub name, `random`, or `half` of the teacher; empty where the study pre-trains it."""
    architecture: str | None = None
    """For `random`: a folder, or `arm:NAME` for the one of another arm."""
    pretraining: Pretraining | None = None
    teacher: str | None = None
    """`arm:NAME`: distilled from that arm's model of the same task and seed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    data_known: bool | None = None
    """Whether it is known what its encoder was trained on, so that test texts were withheld; None: known for what is
    pre-trained here or random."""


@dataclass(frozen=True)
class StudyTask:
    task: str
    data: str
    title: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.title or self.task


@dataclass(frozen=True)
class Search:
    """Settings searched on dev by Optuna before the cells are run; the best ones are used for every arm alike."""

    trials: int = 20
    space: Mapping[str, Any] = field(default_factory=dict)
    """Setting → list of choices, or {low, high, log}."""


@dataclass(frozen=True)
class Study:
    title: str
    question: str
    arms: Sequence[Arm]
    tasks: Sequence[StudyTask]
    seeds: Sequence[int] = (0, 1, 2)
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Setting → values; every arm is run with every combination."""
    search: Search | None = None
    comparisons: Sequence[tuple[str, str]] = ()
    latency: bool = False

    def arm(self, name: str) -> Arm:
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise UserMistake(f"study {self.title!r}: no arm {name!r}; its arms are {', '.join(a.name for a in self.arms)}")


@dataclass(frozen=True)
class Cell:
    """One fine-tuning and its evaluation."""

    arm: Arm
    task: StudyTask
    seed: int
    settings: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"{self.arm.name} · {self.task.name} · seed {self.seed}"

    def assignments(self) -> list[str]:
        """As `--set` takes them."""
        return [f"{name}={_text(value)}" for name, value in sorted(self.settings.items())]

    def fingerprint(self, preset: str | None, inputs: Mapping[str, str]) -> str:
        """`inputs`: what its encoder, architecture, teacher and data are, by content."""
        question = {
            "version": VERSION,
            "task": self.task.task,
            "seed": self.seed,
            "preset": preset,
            "settings": dict(sorted(self.settings.items())),
            "encoder": self.arm.encoder if self.arm.encoder in ("random", "half") else "",
            "inputs": dict(sorted(inputs.items())),
        }
        return digest(question)


def read(name_or_file: str, variables: Mapping[str, str], changes: Mapping[str, str] | None = None) -> Study:
    """A shipped study by name or a YAML file; `${name}` in it stands for a variable.

    `changes`: `seeds`, and settings that hold for all arms and tasks that have none of their own, as text.
    """
    import yaml

    file = Path(name_or_file)
    if not file.exists():
        file = SHIPPED / f"{name_or_file}.yaml"
    if not file.exists():
        raise UserMistake(f"{name_or_file}: neither a file nor one of the shipped studies: {', '.join(shipped())}")
    text = file.read_text(encoding="utf-8")
    try:
        content = yaml.safe_load(_filled(text, variables, file))
    except yaml.YAMLError as error:
        raise UserMistake(f"{file}: not YAML: {error}") from error
    if isinstance(content, dict) and changes:
        content = _changed(content, changes)
    return parse(content, str(file))


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


def places(study: Study) -> list[str]:
    """Every folder and file that the study names, and hub names: what its results depend on besides the file."""
    named = [task.data for task in study.tasks]
    for arm in study.arms:
        named += [arm.encoder, arm.architecture or "", arm.pretraining.shards if arm.pretraining else ""]
    return sorted({name for name in named if name and name not in ("random", "half") and not name.startswith("arm:")})


def shipped() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def variables_of(name_or_file: str) -> list[str]:
    """What a study file needs to be told."""
    file = Path(name_or_file) if Path(name_or_file).exists() else SHIPPED / f"{name_or_file}.yaml"
    return sorted(set(VARIABLE.findall(file.read_text(encoding="utf-8"))))


def _filled(text: str, variables: Mapping[str, str], file: Path) -> str:
    missing = sorted({name for name in VARIABLE.findall(text) if name not in variables})
    if missing:
        raise UserMistake(f"{file}: give {', '.join(f'--var {name}=…' for name in missing)}")
    return VARIABLE.sub(lambda match: variables[match.group(1)], text)


def parse(content: Any, where: str) -> Study:
    """From plain dictionaries, with the field named where one is wrong."""
    study = _fields(Study, content, where)
    arms = [_arm(arm, f"{where}: arms[{i}]") for i, arm in enumerate(study["arms"])]
    tasks = [StudyTask(**_fields(StudyTask, task, f"{where}: tasks[{i}]")) for i, task in enumerate(study["tasks"])]
    if study.get("search"):
        study["search"] = Search(**_fields(Search, study["search"], f"{where}: search"))
    study["comparisons"] = [tuple(pair) for pair in study.get("comparisons", ())]
    result = Study(**study | {"arms": arms, "tasks": tasks})
    _check(result, where)
    return result


def _arm(content: Any, where: str) -> Arm:
    values = _fields(Arm, content, where)
    if values.get("pretraining"):
        values["pretraining"] = Pretraining(**_fields(Pretraining, values["pretraining"], f"{where}: pretraining"))
    elif not values.get("encoder"):
        raise UserMistake(f"{where}: give `encoder` or `pretraining`")
    return Arm(**values)


def _fields(kind: type, content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UserMistake(f"{where}: expected fields, found {content!r}")
    known = {f.name: f for f in fields(kind)}
    for name in content:
        if name not in known:
            raise UserMistake(f"{where}: no field {name!r}; there are {', '.join(known)}")
    return dict(content)


def _check(study: Study, where: str) -> None:
    if not study.arms or not study.tasks or not study.seeds:
        raise UserMistake(f"{where}: a study needs at least one arm, one task and one seed")
    names = [arm.name for arm in study.arms]
    if len(set(names)) < len(names):
        raise UserMistake(f"{where}: two arms have the same name: {', '.join(sorted(names))}")
    for arm in study.arms:
        for other in filter(None, (_named(arm.architecture), _named(arm.teacher), *_measures(arm))):
            study.arm(other)
    for pair in study.comparisons:
        for name in pair:
            if not any(arm.name == name or arm.name.startswith(name + ", ") for arm in with_grid(study)):
                raise UserMistake(f"{where}: comparisons: no arm {name!r}")
    for name in (*study.settings, *study.grid, *(n for a in study.arms for n in a.settings)):
        if name not in FinetuningSettings.__dataclass_fields__:
            raise UserMistake(f"{where}: settings: no setting {name!r}")


def _measures(arm: Arm) -> tuple[str | None, ...]:
    """The arms whose pre-training says how long this one's is."""
    return (arm.pretraining.same_flops_as, arm.pretraining.same_tokens_as) if arm.pretraining else ()


def _named(reference: str | None) -> str | None:
    return reference.removeprefix("arm:") if reference and reference.startswith("arm:") else None


def teacher_of(arm: Arm) -> str | None:
    """The name of the arm that teaches."""
    return _named(arm.teacher)


def architecture_of(arm: Arm) -> str | None:
    """The name of the arm whose architecture a random encoder has."""
    return _named(arm.architecture)


def with_grid(study: Study) -> list[Arm]:
    """Arms × combinations of the grid, each an arm of its own named after its values."""
    if not study.grid:
        return list(study.arms)
    names = list(study.grid)
    return [
        replace(
            arm,
            name=", ".join([arm.name, *(f"{n}={_text(v)}" for n, v in zip(names, values, strict=True))]),
            settings={**arm.settings, **dict(zip(names, values, strict=True))},
        )
        for arm in study.arms
        for values in itertools.product(*study.grid.values())
    ]


def cells(study: Study, searched: Mapping[str, Any] | None = None) -> Iterator[Cell]:
    """In the order of the report. What the study says of all holds least, then the task, then the arm."""
    for task in study.tasks:
        for arm in with_grid(study):
            for seed in study.seeds:
                settings = {**study.settings, **(searched or {}), **task.settings, **arm.settings}
                yield Cell(arm, task, seed, settings)


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def content_fingerprint(path: Path) -> str:
    """Of a file's or folder's bytes and names; logs and checkpoints, which do not decide what it is, left out."""
    if path.is_file():
        return _sha256(path)
    if not path.is_dir():
        return digest(str(path))
    files = sorted(p for p in path.rglob("*") if p.is_file() and not _incidental(p.relative_to(path)))
    return digest([(str(p.relative_to(path)), _sha256(p)) for p in files])


def _incidental(path: Path) -> bool:
    return path.name in ("log.txt", "metrics.jsonl", "manifest.json", "README.md") or "checkpoints" in path.parts


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
