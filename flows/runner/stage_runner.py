"""Makes stages in child processes, shows how to listeners, and mirrors their curves into MLflow."""

import logging
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.flows.runner.processes import (
    Child,
    end_children,
    raise_failure,
    read_event,
    read_reports,
)
from amazon_electra.flows.store.flatten import flatten_numbers, flatten_parameters
from amazon_electra.flows.store.stage import Stage, write_request
from amazon_electra.flows.store.store import REQUEST, Manifest, Store
from amazon_electra.model.tracking.mlflow_run import FINGERPRINT, TrackedRun, Tracking

log = logging.getLogger("amazon_electra")
RUN_STAGE = "amazon_electra.flows.run_stage"

listeners: ContextVar[tuple[Any, ...]] = ContextVar("listeners", default=())
"""Show the runs that this context starts: the terminal (flows/cli/terminal.py)."""


class StageRunner:
    """Makes the stages of a run in processes (flows/run_stage.py), each one after another."""

    def __init__(
        self,
        store: Store,
        listeners: Sequence[Any] = (),
        tracking: Tracking | None = None,
    ):
        """Each listener has methods of the names of events."""
        self.store, self.listeners = store, listeners
        self.tracking = tracking or Tracking("")  # one that is not started sends nothing
        self.tags, self._tracked = dict[str, str](), dict[str, TrackedRun]()
        self._starter = ThreadPoolExecutor(1)  # children end with the thread that started them
        self._lock = threading.Lock()
        self._living, self._idle = list[Child](), list[Child]()
        self._begun = dict[str, Child]()  # by the path of a stage that nobody follows yet
        self.is_ending = False  # then no stage is begun

    def complete_chain(self, chain: Sequence[Stage]) -> None:
        """Make stages one after the other. MLflow has the last one's numbers in the tracked run."""
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
        if run := self._tracked.get(stage.fingerprint):
            self.tracking.log_metrics(metrics, run)
        elif (folder / "metrics.jsonl").exists():
            metrics |= flatten_numbers(manifests[chain.index(stage)]["result"])
            self.tracking.mirror_folder(*self._describe(stage), metrics)

    def complete_stage(self, stage: Stage) -> Manifest:
        """Return the manifest of a stage, which is made first where it is not complete."""
        manifest, is_ours = self.store.manifest(stage), False
        if manifest is None or stage.path in self._begun:
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
        """Have a stage made, and show how; return whether it was, and not by another run."""
        child = self._begun.pop(stage.path, None) or self._order(stage)
        place, report, tracked = (child.log, child.log_start), None, None
        try:
            with ExitStack() as stack:
                event: dict[str, Any] = {"is": ""}
                while event["is"] != "made":
                    event = read_event(child)
                    if event["is"] == "waits":
                        self.notify("on_line", f"{stage.label}: another run makes it; waiting")
                    elif event["is"] == "begun":
                        place = Path(event["log"]), event["start"]
                        report = stack.enter_context(open(place[0], "rb"))
                        report.seek(place[1])
                        self.notify("on_start", stage, event["log"])
                        if stage.tracked:
                            follow = self.tracking.follow_folder(*self._describe(stage))
                            tracked = stack.enter_context(follow)
                            self._tracked[stage.fingerprint] = tracked
                    for name, what in read_reports(report) if report else ():
                        line = f"{stage.label}: {what}"
                        self.notify(name, *([line] if name == "on_line" else [stage, what]))
                    if event["is"] == "failed":
                        self._refuse_when_ending()
                        raise_failure(stage.label, event, *place)
                if tracked and (made := self.store.manifest(stage)):
                    self.tracking.log_metrics(flatten_numbers(made["result"]), tracked)
        except BaseException as error:
            child.end()
            if isinstance(error, JobFailed | UserError):
                self.notify("on_failure", stage, str(error))
            elif report:
                self.notify("on_stop", stage)
            raise
        if stage.resources.beside:  # it has yielded its cores, and may not take them back
            child.end()
        else:
            with self._lock:
                self._idle.append(child)
        return report is not None

    def begin(self, stage: Stage) -> None:
        """Have a process make a stage that is followed later, though it may be complete by then."""
        self._begun[stage.path] = self._order(stage)

    def _order(self, stage: Stage) -> Child:
        """Have a process make a stage: an idle one of the same environment, or a new one."""
        folder = self.store.folder(stage)
        folder.mkdir(parents=True, exist_ok=True)
        stage.prepare(self.store, folder)
        write_json(folder / REQUEST, write_request(stage))
        environment = {"AMAZON_ELECTRA_PROGRESS": "json", "MLFLOW_TRACKING_URI": ""}
        environment |= stage.list_environment(self.store)
        with self._lock:
            child = next((one for one in self._idle if one.environment == environment), None)
            others = [] if child else self._idle
            self._idle = [one for one in self._idle if child and one is not child]
        end_children(others)
        if child is None:
            command = [sys.executable, "-m", RUN_STAGE, "--events", self.store.address]
            jobs = self.store.root / "logs" / "jobs.log"  # what they write before a stage begins
            with self._lock:
                self._refuse_when_ending()
                child = self._starter.submit(Child, command, jobs, environment, True).result()
                self._living = [one for one in self._living if one.returncode is None] + [child]
        assert child.stdin is not None
        child.stdin.write(f"{stage.path}\n".encode())
        return child

    def end(self) -> None:
        """End all processes, with one grace; begin no stage until `is_ending` is false again."""
        self.is_ending = True
        with self._lock:
            living = [child for child in self._living if child.returncode is None]
            self._idle = []
        end_children(living)

    def _refuse_when_ending(self) -> None:
        if self.is_ending:
            raise InterruptedError("the run is ending")

    def _describe(self, stage: Stage) -> tuple[str, Path, dict[str, str], dict[str, str]]:
        """Return the name, folder, parameters and tags of a stage's run in MLflow."""
        own = {"amazon_electra.stage": stage.name, FINGERPRINT: stage.fingerprint}
        tags = {**self.tags, **stage.labels, **own}
        return stage.label, self.store.folder(stage), flatten_parameters(stage.parameters), tags

    def notify(self, event: str, *what: Any) -> None:
        """Call the listeners that hear this event; one that fails does not stop the run."""
        for listener in self.listeners:
            try:
                if hear := getattr(listener, event, None):
                    hear(*what)
            except Exception as error:
                log.warning("%s could not show %r: %s", type(listener).__name__, event, error)


def allocate_threads(chains: Sequence[Sequence[Stage]], at_once: int) -> list[list[Stage]]:
    """Return the chains with as many threads for each job of one thread as cores fall to it; one
    where a job of another kind runs beside. Complete ones count too: same threads, same bytes.
    """
    jobs = [stage for chain in chains for stage in chain if stage.has_job]
    threads = (os.cpu_count() or 1) // max(1, min(at_once, len(chains)))
    if threads < 2 or not all(stage.runs_beside for stage in jobs):
        return [list(chain) for chain in chains]

    def allocate(stage: Stage) -> Stage:
        resources = stage.resources.replace(threads=threads)
        return replace(stage, resources=resources) if stage.has_job else stage

    return [list(map(allocate, chain)) for chain in chains]
