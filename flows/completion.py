"""Brings stages to completeness: found in the store, or made by their job, tracked and shown while that lasts."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from beam_jobs.command import UserMistake
from flows.parameters import Parameters
from flows.presentation import Audience, numbers
from flows.processes import JobFailed, run_job
from flows.stages import dump
from flows.store import Manifest, Stage, Store
from model.tracking import Run as TrackedRun
from model.tracking import Tracking

log = logging.getLogger("amazon_electra")


class Maker(Protocol):
    """What the graph asks of whoever goes through it: to make stages, or to say what would be made."""

    store: Store

    @property
    def champion(self) -> Stage | None:
        """The encoder that is the champion of the registry, where there is one."""

    def dump(self, parameters: Parameters) -> Stage:
        """The reviews, as their files say what they are."""

    def __call__(self, stage: Stage) -> Stage: ...

    def side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> None: ...


@dataclass
class Plan:
    """Makes nothing: lists the stages in order, and whether each is complete (`--dry-run`)."""

    store: Store
    champion: Stage | None = None
    stages: list[tuple[Stage, bool]] = field(default_factory=list)

    def dump(self, parameters: Parameters) -> Stage:
        return dump.stage(parameters, self.store)

    def __call__(self, stage: Stage) -> Stage:
        self.stages.append((stage, self.store.manifest(stage) is not None))
        return stage

    def side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> None:
        for chain in chains:
            for stage in chain:
                self(stage)


@dataclass
class Completion:
    """Everything it takes to make a stage: where, who is told, who keeps the numbers."""

    store: Store
    audiences: Sequence[Audience]
    tracking: Tracking
    tags: Mapping[str, str] = field(default_factory=dict)
    mirrored: list[Stage] = field(default_factory=list)

    def complete(self, stage: Stage) -> Manifest:
        """The manifest, whatever it takes; a second process that wants the same stage waits for the first."""
        manifest = self.store.manifest(stage)
        if manifest is None:
            with self.store.claimed(stage, lambda: self._tell("waiting", stage)) as folder:
                manifest = self.store.manifest(stage)
                if manifest is None:
                    return self._make(stage, folder)
        if stage.tracked and self.tracking.behind(self.store.folder(stage)):
            self._mirror(stage, lambda: manifest)
            self.mirrored.append(stage)
        self._tell("completed", stage, manifest, True)
        return manifest

    def complete_all(self, chain: Sequence[Stage]) -> Manifest:
        """One after the other; the last one's numbers belong to the tracked run of the chain as well."""
        manifests = [self.complete(stage) for stage in chain]
        tracked = [stage for stage in chain if stage.tracked]
        if tracked and tracked[-1] in self.mirrored:
            run = TrackedRun(tracked[-1].label, self.store.folder(tracked[-1]))
            self.tracking.log_metrics(evaluated(manifests[-1]["result"]), run)
        return manifests[-1]

    def _make(self, stage: Stage, folder: Path) -> Manifest:
        log = folder / "log.txt"
        self._tell("begun", stage, str(log))
        try:
            cost = _made_along(stage, folder) or (self._run(stage, folder, log) if stage.module else {})
        except JobFailed as failure:
            self._tell("failed", stage, str(failure))
            raise
        except UserMistake as mistake:
            self._tell("failed", stage, f"{mistake} (log: {log})")
            raise UserMistake(f"{stage.label}: {mistake}") from None
        result = cost.pop("result", dict(stage.result))
        manifest = self.store.publish(stage, result, **cost)
        self._tell("completed", stage, manifest, False)
        return manifest

    def _run(self, stage: Stage, folder: Path, log: Path) -> dict[str, Any]:
        arguments = stage.arguments(self.store, folder)

        def follow(progress: Mapping[str, Any]) -> None:
            if "link" in progress:
                self._tell("linked", stage, progress["link"])
            else:
                self._tell("progressed", stage, progress)

        def job() -> dict[str, Any]:
            return dict(vars(run_job(stage.module, arguments, log, stage.environment, follow, stage.label)))

        if not stage.tracked:
            return job()
        self.mirrored.append(stage)
        return self._mirror(stage, job)

    def _mirror(self, stage: Stage, job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `job` gives, its curves mirrored while it lasts; the run is over once all of it was sent."""
        folder = self.store.folder(stage)
        with self.tracking.following(stage.label, folder, flat(stage.parameters), self._tags(stage)) as run:
            finished = job()
            self.tracking.log_metrics(numbers(finished["result"]), run)
            if (folder / "discriminator").is_dir():
                self.tracking.log_folder(folder / "discriminator", "discriminator", run)
        return finished

    def _tags(self, stage: Stage) -> dict[str, str]:
        return {**self.tags, "amazon_electra.stage": stage.name, "amazon_electra.fingerprint": stage.fingerprint}

    def _tell(self, event: str, *what: Any) -> None:
        """What one cannot show stops neither the others nor the run."""
        for audience in self.audiences:
            try:
                getattr(audience, event)(*what)
            except Exception as error:
                log.warning("%s could not show %r: %s", type(audience).__name__, event, error)


def _made_along(stage: Stage, folder: Path) -> dict[str, Any]:
    """The result of a stage whose files the job of an earlier stage has written already."""
    if not stage.written_last or not (folder / stage.written_last).exists():
        return {}
    return {"result": json.loads((folder / stage.written_last).read_text())}


def evaluated(result: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation: `test.accuracy`, and its interval `test.accuracy.low`, `test.accuracy.high`."""
    found = numbers(result.get("metrics", {}))
    return {f"{result.get('split', 'test')}.{name.removesuffix('.value')}": value for name, value in found.items()}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Dotted names and texts, as MLflow's parameters are."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return found
