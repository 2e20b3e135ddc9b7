"""Makes stages: looks them up in the store or runs their job, tracks it, and notifies
listeners.
"""

import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.flows.runner.processes import (
    WarmWorkers,
    read_hang_seconds,
    refuse_when_ending,
    run_job,
)
from amazon_electra.flows.store.flatten import flatten_numbers, flatten_parameters
from amazon_electra.flows.store.place import REQUEST
from amazon_electra.flows.store.stage import Stage, write_request
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.model.tracking.mlflow_run import FINGERPRINT, TrackedRun, Tracking

log = logging.getLogger("amazon_electra")
T = TypeVar("T")
RUN_STAGE = "amazon_electra.flows.run_stage"
TRAINED = ("discriminator", "encoder")
"""Folder of what a pre-training made (model/pretraining/save.py), the first that is there."""


class StageMaker(Protocol):
    """Makes the stages of a graph in the order in which the graph names them, or lists them."""

    store: Store

    def find_champion(self, task: str) -> Stage | None:
        """Return the stage of a task's champion, where it is in this store."""

    def call(self, name: str, function: Callable[[], T]) -> T:
        """Return what another server answers; it is asked again where that may help."""

    def __call__(self, stage: Stage) -> Stage:
        """Make one stage."""

    def make_side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> None:
        """Make chains of stages, at most `at_once` of them at a time."""


class ProgressListener(Protocol):
    """Shows what happens to a stage. What it cannot show it drops: it cannot stop a run."""

    def on_plan(self, line: str, page: str) -> None:
        """Show what is to do: in a line, and as Markdown."""

    def on_start(self, stage: Stage, log: str) -> None: ...

    def on_progress(self, stage: Stage, progress: Mapping[str, Any]) -> None: ...

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None: ...

    def on_failure(self, stage: Stage, cause: str) -> None: ...

    def on_stop(self, stage: Stage) -> None:
        """Show that the run was interrupted while it made the stage."""

    def on_wait(self, stage: Stage) -> None: ...

    def on_link(self, stage: Stage, address: str) -> None: ...

    def on_answer(self, row: Mapping[str, str]) -> None:
        """Show the new row of the table of answers, by column."""


listeners: ContextVar[tuple[ProgressListener, ...]] = ContextVar("listeners", default=())
"""Of the runs that this context starts, besides Prefect: the terminal of `amazon-electra run`. A
flow has only parameters of its form."""


@dataclass
class Plan:
    """Makes nothing: lists each stage once, and whether it is complete (`--dry-run`)."""

    store: Store
    find_champion: Callable[[str], Stage | None] = lambda task: None
    stages: list[tuple[Stage, bool]] = field(default_factory=list)

    def call(self, name: str, function: Callable[[], T]) -> T:
        return function()

    def __call__(self, stage: Stage) -> Stage:
        if all(stage.fingerprint != known.fingerprint for known, _ in self.stages):
            self.stages.append((stage, self.store.manifest(stage) is not None))
        return stage

    def make_side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> None:
        for chain in chains:
            for stage in chain:
                self(stage)


@dataclass
class StageRunner:
    """Makes stages in a store, notifies the listeners, and mirrors their curves into MLflow."""

    store: Store
    listeners: Sequence[Any]
    """Each has some of the methods of a `ProgressListener`."""
    tracking: Tracking
    tags: Mapping[str, str] = field(default_factory=dict)
    tracked: dict[str, TrackedRun] = field(default_factory=dict)
    """Fingerprint of a stage that was made here → its run in MLflow."""
    kept: WarmWorkers | None = None
    """Processes for the jobs of stages that share one."""

    @contextmanager
    def keep_processes(self) -> Iterator[None]:
        """Keep the processes of stages that share one until the block is left."""
        with WarmWorkers() as self.kept:
            try:
                yield
            finally:
                self.kept = None

    def show_end(self, stage: Stage, cause: str = "") -> None:
        """Notify the listeners that another process has made a stage, or why it could not."""
        if cause:
            self.notify("on_failure", stage, cause)
        elif manifest := self.store.manifest(stage):
            self.notify("on_complete", stage, manifest, False)
        else:
            raise TransientError(f"{stage.label}: it is not in the store {self.store.address}")

    def complete_stage(self, stage: Stage) -> Manifest:
        """Return the stage's manifest; make the stage first where it is not complete.

        A second process that wants the same stage waits for the first.
        """
        manifest = self.store.manifest(stage)
        if manifest is None:
            with self.store.lock_stage(stage, lambda: self.notify("on_wait", stage)) as folder:
                manifest = self.store.manifest(stage)
                if manifest is None:
                    return self._make_stage(stage, folder)
        self.notify("on_complete", stage, manifest, True)
        return manifest

    def complete_chain(self, chain: Sequence[Stage]) -> Manifest:
        """Make stages one after the other and return the last manifest.

        The last one's numbers are logged to the tracked run of the chain as well.
        """
        manifests = [self.complete_stage(stage) for stage in chain]
        tracked = [stage for stage in chain if stage.tracked]
        if not tracked:
            return manifests[-1]
        stage, result = tracked[-1], manifests[-1]["result"]
        # of an evaluation test.accuracy, and its interval test.accuracy.low, test.accuracy.high
        metrics = {
            f"{result.get('split', 'test')}.{name.removesuffix('.value')}": value
            for name, value in flatten_numbers(result.get("metrics", {})).items()
        }
        if run := self.tracked.get(stage.fingerprint):
            self.tracking.log_metrics(metrics, run)
            return manifests[-1]
        is_here = (self.store.folder(stage) / "metrics.jsonl").exists()
        if stage.shared or is_here:
            metrics |= flatten_numbers(manifests[chain.index(stage)]["result"])
            self.tracking.mirror_folder(
                stage.label,
                self.store.fetch(stage, "metrics.jsonl"),
                flatten_parameters(stage.parameters),
                self._tag_stage(stage),
                metrics,
                in_each_parent=stage.shared,
            )
        return manifests[-1]

    def _make_stage(self, stage: Stage, folder: Path) -> Manifest:
        log = folder / "log.txt"
        refuse_when_ending()
        try:
            self.notify("on_start", stage, str(log))
            cost = read_result_of_earlier_job(stage, folder)
            if stage.has_job and not cost:
                cost = self._run_stage_job(stage, folder, log)
        except JobFailed as failure:
            self.notify("on_failure", stage, str(failure))
            raise
        except UserError as mistake:
            self.notify("on_failure", stage, f"{mistake} (log: {log})")
            raise UserError(f"{stage.label}: {mistake}") from None
        except BaseException as ended:
            if isinstance(ended, InterruptedError) or not isinstance(ended, Exception):
                self.notify("on_stop", stage)
            raise
        self._check_dumps(stage, folder)
        result = cost.pop("result", dict(stage.result))
        manifest = self.store.publish(stage, result, **cost)
        self.notify("on_complete", stage, manifest, False)
        return manifest

    def _check_dumps(self, stage: Stage, folder: Path) -> None:
        """Raise UserError if a dump that the job read is no longer what the stage is named after;
        what was made of it goes. A sample lies elsewhere on each host.
        """
        for dump in (source for source in stage.inputs.values() if source.name == "dump"):
            pairs = zip(dump.result["paths"], dump.parameters["files"], strict=True)
            for path, file in pairs:
                is_here = storage.is_remote(path) or Path(path).exists()
                if is_here and self.store.digest(path) != file["sha256"]:
                    why = f"{path} changed while it was read; run the same again"
                    shutil.rmtree(folder, ignore_errors=True)
                    self.notify("on_failure", stage, why)
                    raise UserError(f"{stage.label}: {why}")

    def _run_stage_job(self, stage: Stage, folder: Path, log: Path) -> dict[str, Any]:
        """Return the result and cost of a stage's job; its curves are mirrored while it lasts."""
        stage.prepare(self.store, folder)
        write_json(folder / REQUEST, write_request([stage]))
        command = [str(self.store.root), stage.path]

        def follow(progress: Mapping[str, Any]) -> None:
            if "link" in progress:
                self.notify("on_link", stage, progress["link"])
            else:
                self.notify("on_progress", stage, progress)

        hang = math.inf if stage.on_engine else read_hang_seconds()  # an engine's waits for hours
        kept = self.kept if stage.runs_beside and not stage.takes_accelerator else None
        environment = stage.list_environment(self.store)
        parameters, tags = flatten_parameters(stage.parameters), self._tag_stage(stage)
        with (
            self.tracking.follow_folder(stage.label, folder, parameters, tags)
            if stage.tracked
            else nullcontext() as tracked
        ):
            if tracked:
                self.tracked[stage.fingerprint] = tracked
            done = run_job(RUN_STAGE, command, log, environment, follow, stage.label, hang, kept)
            self.store.collect_output(stage)
            if tracked:
                self.tracking.log_metrics(flatten_numbers(done.result), tracked)
                if name := next((name for name in TRAINED if (folder / name).is_dir()), ""):
                    self.tracking.log_folder(folder / name, name, tracked)
        return dict(vars(done))

    def _tag_stage(self, stage: Stage) -> dict[str, str]:
        return {
            **self.tags,
            **stage.labels,
            "amazon_electra.stage": stage.name,
            FINGERPRINT: stage.fingerprint,
        }

    def notify(self, event: str, *what: Any) -> None:
        """Call every listener that hears this event; one that fails stops neither the others nor
        the run.
        """
        for listener in self.listeners:
            try:
                getattr(listener, event, ignore)(*what)
            except Exception as error:
                log.warning("%s could not show %r: %s", type(listener).__name__, event, error)


def read_result_of_earlier_job(stage: Stage, folder: Path) -> dict[str, Any]:
    """Return the result of a stage whose files an earlier stage's job has written already."""
    if not stage.written_last or not (folder / stage.written_last).exists():
        return {}
    return {"result": json.loads((folder / stage.written_last).read_text(encoding="utf-8"))}


def ignore(*what: Any) -> None:
    """Do nothing: what a listener does with an event that it has no method for."""


def allocate_threads(chains: Sequence[Sequence[Stage]], at_once: int) -> list[list[Stage]]:
    """Return the chains with as many threads for each job of one thread as cores fall to it.

    All chains count, complete ones too: a run that continues another gives a job the same threads,
    and so the same bytes. Where a job of another kind runs beside, which counts on one core for
    each of these, they keep one.
    """
    jobs = [stage for chain in chains for stage in chain if stage.has_job]
    threads = (os.cpu_count() or 1) // max(1, min(at_once, len(chains)))
    if threads < 2 or not all(stage.runs_beside for stage in jobs):
        return [list(chain) for chain in chains]

    def allocate(stage: Stage) -> Stage:
        if not stage.has_job:
            return stage
        return replace(stage, resources=stage.resources.replace(threads=threads))

    return [[allocate(stage) for stage in chain] for chain in chains]
