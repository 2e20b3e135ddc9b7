"""Makes stages, shows how to listeners, and mirrors their curves into MLflow."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.runner.processes import StageProcesses
from amazon_electra.flows.store.flatten import flatten_numbers, flatten_parameters
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import LOG, Manifest, Store
from amazon_electra.model.tracking.mlflow_run import FINGERPRINT, TrackedRun, Tracking

log = logging.getLogger("amazon_electra")
TRAINED = ("discriminator", "encoder")
"""Folder of what a pre-training made (model/pretraining/save.py), the first that is there."""

listeners: ContextVar[tuple[Any, ...]] = ContextVar("listeners", default=())
"""Show the runs that this context starts, besides Prefect: the terminal of `amazon-electra run`
(flows/cli/terminal.py), which has every event. A flow has only parameters of its form."""


class StageRunner:
    """Makes stages in a store, notifies the listeners, and mirrors their curves into MLflow."""

    def __init__(
        self,
        store: Store,
        listeners: Sequence[Any],
        tracking: Tracking,
        tags: Mapping[str, str] | None = None,
        processes: StageProcesses | None = None,
    ):
        """Each listener has methods of the names of events, and drops what it cannot show: it
        cannot stop a run. `processes` make the first stages already.
        """
        self.store, self.listeners, self.tracking = store, listeners, tracking
        self.tags, self.processes = tags or {}, processes or StageProcesses(store)
        self.tracked = dict[str, TrackedRun]()
        """Fingerprint of a stage that was made here → its run in MLflow."""

    def complete_chain(self, chain: Sequence[Stage]) -> None:
        """Make stages one after the other. The last one's numbers are logged to the tracked run of
        the chain as well.
        """
        manifests = [self.complete_stage(stage) for stage in chain]
        stage = next((stage for stage in reversed(chain) if stage.tracked), None)
        if stage is None:
            return
        result, folder = manifests[-1]["result"], self.store.folder(stage)
        # of an evaluation test.accuracy, and its interval test.accuracy.low, test.accuracy.high
        metrics = {
            f"{result.get('split', 'test')}.{name.removesuffix('.value')}": value
            for name, value in flatten_numbers(result.get("metrics", {})).items()
        }
        if run := self.tracked.get(stage.fingerprint):
            self.tracking.log_metrics(metrics, run)
        elif (folder / "metrics.jsonl").exists():
            metrics |= flatten_numbers(manifests[chain.index(stage)]["result"])
            self.tracking.mirror_folder(*self._describe(stage), metrics)

    def complete_stage(self, stage: Stage) -> Manifest:
        """Return the stage's manifest; have a process make the stage first where it is not
        complete.
        """
        manifest, is_ours = self.store.manifest(stage), False
        if manifest is None or self.processes.is_begun(stage):
            if stage.has_job:
                is_ours = self._make(stage)
            else:
                with self.store.lock_stage(stage):
                    self.store.publish(stage, dict(stage.result))
                is_ours = True
            manifest = self.store.manifest(stage)
        if manifest is None:
            raise TransientError(f"{stage.label}: it is not in the store {self.store.address}")
        self.notify("on_complete", stage, manifest, not is_ours)
        return manifest

    def _make(self, stage: Stage) -> bool:
        """Show how a stage is made, and mirror its curves; return whether it was made here, not by
        another run meanwhile.
        """
        folder, has_begun, tracked = self.store.folder(stage), False, None
        try:
            with ExitStack() as stack:
                for event in self.processes.follow(stage):
                    if event["is"] == "begun":
                        has_begun = True
                        self.notify("on_start", stage, event["log"])
                        if stage.tracked:
                            follow = self.tracking.follow_folder(*self._describe(stage))
                            tracked = stack.enter_context(follow)
                            self.tracked[stage.fingerprint] = tracked
                    elif event["is"] == "waits":
                        self.notify("on_wait", stage)
                    elif event["is"] == "link":
                        self.notify("on_link", stage, event["address"])
                    else:
                        self.notify("on_progress", stage, event["progress"])
                if tracked and (made := self.store.manifest(stage)):
                    self.tracking.log_metrics(flatten_numbers(made["result"]), tracked)
                    if name := next((name for name in TRAINED if (folder / name).is_dir()), ""):
                        self.tracking.log_folder(folder / name, name, tracked)
        except JobFailed as failure:
            self.notify("on_failure", stage, str(failure))
            raise
        except UserError as mistake:
            self.notify("on_failure", stage, f"{mistake} (log: {folder / LOG})")
            raise
        except (KeyboardInterrupt, InterruptedError):
            if has_begun:
                self.notify("on_stop", stage)
            raise
        return has_begun

    def _describe(self, stage: Stage) -> tuple[str, Path, dict[str, str], dict[str, str]]:
        """Return the name, folder, parameters and tags of a stage's run in MLflow."""
        own = {"amazon_electra.stage": stage.name, FINGERPRINT: stage.fingerprint}
        tags = {**self.tags, **stage.labels, **own}
        return stage.label, self.store.folder(stage), flatten_parameters(stage.parameters), tags

    def notify(self, event: str, *what: Any) -> None:
        """Call every listener that hears this event; one that fails stops neither the others nor
        the run.
        """
        for listener in self.listeners:
            try:
                if hear := getattr(listener, event, None):
                    hear(*what)
            except Exception as error:
                log.warning("%s could not show %r: %s", type(listener).__name__, event, error)


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
        resources = stage.resources.replace(threads=threads)
        return replace(stage, resources=resources) if stage.has_job else stage

    return [list(map(allocate, chain)) for chain in chains]
