"""A stage: one class for each kind, which knows its name, version, config, inputs, and how to make
it (docs/extending.md has an example). All of it is plain JSON, so run_stage.py makes one anywhere.

Bump `version` when the output changes: the code is not part of the fingerprint.
"""

import json
import re
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, ValidationError

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.plugins import load_plugins, register_module
from amazon_electra.beam_jobs.core.settings import Settings, join_mistakes
from amazon_electra.flows.configuration.engine import Engine

PATH = re.compile(r"[a-z]+(-[a-z]+)*/[0-9a-f]{16}")
"""`<stage>/<fingerprint>`, a stage's folder in a store."""
KnownFile = tuple[str, str]
"""Path and SHA-256 of a file."""


class Resources(Settings):
    """Where and with what a stage is made. Nothing here changes a byte of the result."""

    device: str = "auto"
    threads: int = Field(default=0, ge=0, description="CPU threads of each process; 0: all cores")
    processes: int = Field(default=1, ge=1)
    beside: int = Field(default=0, ge=0, description="Jobs that run at the same time on this CPU")
    engine: Engine = Field(default=Engine(), description="Where Beam's workers are")


@dataclass(frozen=True)
class Stage:
    """One node of the graph."""

    config: Any = field(default_factory=Settings)  # an instance of `Config`
    inputs: Mapping[str, "Stage"] = field(default_factory=dict)
    files: Mapping[str, tuple[KnownFile, ...]] = field(default_factory=dict)
    """Local files that the job reads, by use. Their digests decide the result, not their paths."""
    resources: Resources = field(default_factory=Resources)
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # tags of its run in MLflow
    result: Mapping[str, Any] = field(default_factory=dict)
    """Of a stage without a job: it is complete as soon as this is known."""
    reads: Mapping[str, "Stage"] = field(default_factory=dict)
    """Stages that the job reads as well, which are known from the inputs or the config already."""

    name: ClassVar[str]
    version: ClassVar[int]
    Config: ClassVar[type[Settings]] = Settings
    has_job: ClassVar[bool] = True
    headline: ClassVar[tuple[str, ...]] = ()  # numbers to show; empty: the first four
    ends_run: ClassVar[bool] = False  # others are on the way to one that does
    inner: ClassVar[str] = ""  # folder in its own that others read; empty: all of it
    written_last: ClassVar[str] = ""
    """File with the result, where another stage's job may have made this one along with its own."""
    tracked: ClassVar[bool] = False  # it writes metrics.jsonl, and is a run of its own in MLflow
    takes_accelerator: ClassVar[bool] = False  # the machine's one GPU, TPU, or all cores
    runs_beside: ClassVar[bool] = False  # others

    registry: ClassVar[dict[str, type["Stage"]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):
            Stage.registry[cls.name] = cls

    def run(self, store: Any, folder: Path) -> dict[str, Any]:
        """Make the stage in its folder of a `Store`; return its result."""
        raise UserError(f"{self.label}: nothing makes a stage of this kind")

    def prepare(self, store: Any, folder: Path) -> None:
        """Write what the run alone knows, before the job is started."""

    def locate(self, store: Any, on_engine: bool = False) -> str:
        """Return what a job reads of it, on this machine or by an engine's workers."""
        place = store.locate(self) if on_engine else store.fetch(self)
        return f"{place}/{self.inner}" if self.inner else str(place)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return what decides the result besides the inputs, as plain JSON, without defaults."""
        digests = {use: [sha256 for _, sha256 in files] for use, files in self.files.items()}
        return {**dict_of(self.config), **digests}

    @property
    def scratch(self) -> tuple[str, ...]:
        """Return the folders in its own that its job continues from, which go at its end."""
        return ()

    @property
    def on_engine(self) -> bool:
        """Return whether its workers read and write in the store, not in copies."""
        return self.resources.engine.kind != "local"

    def list_environment(self, store: Any) -> dict[str, str]:
        """Return what is added to the environment of its job: beside others one thread."""
        if not self.runs_beside:
            return {}
        threads = str(self.resources.threads or 1)
        own = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"}
        return {**own, "TOKENIZERS_PARALLELISM": "false"}

    @cached_property
    def fingerprint(self) -> str:
        """Return 16 hex digits: no two of a billion stages collide by chance (p < 0.03)."""
        identity = {
            "stage": self.name,
            "version": self.version,
            "parameters": self.parameters,
            "inputs": {name: stage.fingerprint for name, stage in self.inputs.items()},
        }
        return hash_bytes(json.dumps(identity, sort_keys=True).encode())[:16]

    @property
    def path(self) -> str:
        """Return its folder, below that of the store."""
        return f"{self.name}/{self.fingerprint}"

    @property
    def label(self) -> str:
        return self.title or self.name

    def is_made_of(self, fingerprints: Collection[str]) -> bool:
        """Return whether any of these stages decides this one's content, however far back."""
        return any(
            source.fingerprint in fingerprints or source.is_made_of(fingerprints)
            for source in self.inputs.values()
        )


class ExistingStage(Stage):
    """A stage that was made earlier, known by its folder alone."""

    has_job = False

    def __init__(self, name: str, fingerprint: str, title: str = "") -> None:
        is_name = re.fullmatch(r"[\w-]*", fingerprint)  # not a path: it may be a tag of MLflow's
        require(is_name, f"stage {name}: {fingerprint!r} is no fingerprint")
        super().__init__(f"{name}/{fingerprint}", title=title)
        vars(self).update(name=name, fingerprint=fingerprint)


@dataclass(frozen=True)
class Group:
    """Chains of stages that are made at the same time, at most `at_once` of them."""

    chains: Sequence[Sequence[Stage]]
    at_once: int = 1
    may_fail: bool = False
    """Whether the graph goes on without what fails; it is sent the causes by the stages' paths."""

    @classmethod
    def of(cls, *stages: Stage) -> Self:
        """Return a group of stages that are made one after the other."""
        return cls([stages])

    @property
    def stages(self) -> list[Stage]:
        return [stage for chain in self.chains for stage in chain]


Groups = Generator[Group, Any, Any]
"""A graph. A run makes each group before it asks for the next, `--dry-run` nothing."""


def list_stages(groups: Groups, store: Any) -> list[tuple[Stage, bool]]:
    """Return each stage of a graph once, in order, and whether it is complete in a `Store`."""
    stages = {stage.fingerprint: stage for group in groups for stage in group.stages}
    return [(stage, store.manifest(stage) is not None) for stage in stages.values()]


def dict_of(config: Settings) -> dict[str, Any]:
    """Return a config as plain JSON, without what is as by default."""
    return config.model_dump(mode="json", exclude_defaults=True)


def register_stage(kind: type[Stage]) -> type[Stage]:
    """Let child processes import the module of a stage's class from another package."""
    register_module(kind.__module__)
    return kind


def find_class(name: str) -> type[Stage] | None:
    """Return the class of the stages of this name: ours (flows/stages), or one from a plugin."""
    load_plugins()
    return Stage.registry.get(name)


def write_request(stage: Stage) -> dict[str, Any]:
    """Return a stage and everything it is made of as plain JSON, by folder."""
    found: dict[str, Any] = {}

    def add(stage: Stage) -> str:
        if isinstance(stage, ExistingStage):
            found[stage.path] = {"title": stage.title}
        elif stage.path not in found:
            found[stage.path] = {
                "config": dict_of(stage.config),
                "inputs": {name: add(source) for name, source in stage.inputs.items()},
                "reads": {name: add(source) for name, source in stage.reads.items()},
                "files": dict(stage.files),
                "resources": dict_of(stage.resources),
                "title": stage.title,
                "labels": dict(stage.labels),
                "result": dict(stage.result),
            }
        return stage.path

    add(stage)
    return found


def read_request(request: Mapping[str, Any], path: str) -> Stage:
    """Return the stage of a folder that a request names; ValueError where this code makes another
    one of it, or does not know it.
    """

    @cache
    def find(at: str) -> Stage:
        given, (name, _, fingerprint) = dict(request[at]), at.partition("/")
        if "config" not in given:
            return ExistingStage(name, fingerprint, given["title"])
        kind = find_class(name)
        if kind is None:
            raise ValueError(f"there is no stage {name} here, and {at} in the request")
        for role in ("inputs", "reads"):
            given[role] = {name: find(source) for name, source in given[role].items()}
        given["config"] = kind.Config(**given["config"])
        given["resources"] = Resources(**given["resources"])
        given["files"] = {use: tuple(map(tuple, known)) for use, known in given["files"].items()}
        if (stage := kind(**given)).path != at:
            raise ValueError(f"{stage.label} is {stage.path} here, and {at} in the request")
        return stage

    try:
        return find(path)
    except ValidationError as invalid:
        raise ValueError(f"{path}: {join_mistakes(invalid)}") from None
