"""Who needs which stage folder of a store, what room each takes, and what may go."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_jobs.job.errors import UserError
from beam_jobs.job.files import write_json
from beam_jobs.job.locks import try_lock
from flows.runner.store import MANIFEST, Manifest, Store

RESULTS = ("report", "study", "scores", "pretraining", "shards", "corpus", "vocabulary")
"""Stages that a run may end with, in this order; the others are on the way to one of them."""
RUN_MARK = "process.lock"
"""In a run's folder of the store: locked for as long as the process of the run lives."""
MLFLOW = "mlflow"
CHECKPOINTS = "checkpoints"
"""Folder in a pre-training's (model/pretraining/outputs.py)."""


@dataclass(frozen=True)
class Run:
    """A stage that nothing else was made of, with everything it was made of."""

    last: Manifest
    lineage: tuple[Manifest, ...]

    @property
    def state(self) -> str:
        return "complete" if self.last["stage"] in RESULTS else "unfinished"

    def find_value(self, stage: str, *keys: str) -> str:
        """Return a value of the first stage of this name, or nothing."""
        for manifest in self.lineage:
            if manifest["stage"] == stage:
                value: Any = manifest
                for key in keys:
                    value = value.get(key, {})
                return str(value or "")
        return ""


def list_runs(store: Store) -> list[Run]:
    """Return the runs of a store, oldest first; of one that did not end, one for all its cells."""
    manifests = store.list_manifests()
    used = {source["fingerprint"] for m in manifests for source in m["inputs"].values()}
    runs: dict[str, Run] = {}
    for manifest in manifests:
        if manifest["fingerprint"] not in used:
            lineage = tuple(origin for _, origin in store.trace_lineage(manifest))
            run = Run(manifest, lineage)
            dump = run.find_value("dump", "fingerprint")
            key = manifest["fingerprint"] if run.state == "complete" else f"unfinished {dump}"
            runs[key] = run
    return list(runs.values())


def list_run_marks(store: Store) -> list[Path]:
    """Return the marks of the runs that have not ended, or were killed."""
    return sorted(store.root.glob(f"runs/*/{RUN_MARK}"))


def list_begun_runs(store: Store) -> Iterator[tuple[str, str]]:
    """Yield name and state of the runs that have not ended: running, or killed if the process is
    gone.
    """
    for mark in list_run_marks(store):
        with open(mark, "a+") as file:
            state = "killed" if try_lock(file) else "running"
        yield mark.read_text() or mark.parent.name, state


def list_file_states(folder: Path) -> list[os.stat_result]:
    return [path.lstat() for path in folder.rglob("*") if path.is_file()]


def measure_folder(folder: Path) -> int:
    """Return the bytes of all files below a folder; a file with two names counts once."""
    return sum({state.st_ino: state.st_size for state in list_file_states(folder)}.values())


def measure_kinds(store: Store) -> dict[str, int]:
    """Return the bytes below each folder of a store; checkpoints count apart.

    A file that MLflow has a second name of counts where it was made.
    """
    folders = sorted(
        (p for p in store.root.iterdir() if p.is_dir()), key=lambda p: (p.name == MLFLOW, p)
    )
    places = {path.name: [path] for path in folders}
    found, seen = dict[str, int](), set[int]()
    for kind, paths in ({CHECKPOINTS: list_checkpoints(store)} | places).items():
        states = {s.st_ino: s.st_size for path in paths for s in list_file_states(path)}
        found[kind] = sum(size for inode, size in states.items() if inode not in seen)
        seen |= set(states)
    return found


def measure_removal(paths: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Yield each path with the bytes that are free once it and those before it are removed.

    A file that has another name, as an artifact of MLflow, stays.
    """
    names = Counter[int]()
    for path in paths:
        states = list_file_states(path)
        names.update(state.st_ino for state in states)
        freed = {s.st_ino: s.st_size for s in states if names[s.st_ino] == s.st_nlink}
        yield path, sum(freed.values())


def find_folder(store: Store, manifest: Manifest) -> Path:
    """Return the folder of a complete stage."""
    return store.root / manifest["stage"] / manifest["fingerprint"]


def list_stage_folders(store: Store) -> list[Path]:
    """Return every stage folder, complete or not."""
    found = [path for path in store.root.glob("*/*") if path.is_dir()]
    return sorted(p for p in found if len(p.name) == 16 and set(p.name) <= set("0123456789abcdef"))


def list_checkpoints(store: Store) -> list[Path]:
    """Return the checkpoints of finished pre-trainings, which nothing reads any more."""
    folders = [p for p in list_stage_folders(store) if (p / MANIFEST).exists()]
    return [checkpoint for folder in folders for checkpoint in sorted(folder.glob(CHECKPOINTS))]


def list_prunable(store: Store, kept: Iterable[str], registered: Iterable[str]) -> list[Path]:
    """Return what no kept run, study or registered model needs, and checkpoints of finished stages.

    `kept` are beginnings of the fingerprints of runs, empty for all complete ones; `registered`
    the fingerprints of the stages that models of the registry were made of.
    """
    needed: set[str] = set()
    for run in _choose_runs(list_runs(store), list(kept)):
        needed |= {manifest["fingerprint"] for manifest in run.lineage}
    for fingerprint in registered:
        for manifest in store.find(fingerprint):
            needed |= {origin["fingerprint"] for _, origin in store.trace_lineage(manifest)}
    gone = [p for p in list_stage_folders(store) if p.name not in needed and not is_in_use(p)]
    return [*gone, *(p for p in list_checkpoints(store) if p.parent not in gone)]


def _choose_runs(runs: list[Run], kept: list[str]) -> list[Run]:
    complete = [run for run in runs if run.state == "complete"]
    chosen = [r for r in complete if any(r.last["fingerprint"].startswith(k) for k in kept)]
    for beginning in kept:
        if not any(run.last["fingerprint"].startswith(beginning) for run in complete):
            raise UserError(
                f"--keep {beginning}: no such run; `amazon-electra runs` lists them with their "
                "fingerprints"
            )
    studies = [run for run in complete if run.last["stage"] == "study"]
    return [*chosen, *studies] if kept else complete


def is_in_use(folder: Path) -> bool:
    """Return whether a process is making this stage."""
    lock = folder.with_suffix(".lock")
    if not lock.exists():
        return False
    with open(lock, "a+") as file:
        return not try_lock(file)


def remove_paths(paths: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Remove stage folders and checkpoints; yield each with the bytes that are free now."""
    for path, size in list(measure_removal(paths)):
        if path.match(CHECKPOINTS):
            _forget_files(path)
        else:
            (path / MANIFEST).unlink(missing_ok=True)  # what is half removed is not complete
        shutil.rmtree(path)
        path.with_suffix(".lock").unlink(missing_ok=True)
        yield path, size


def _forget_files(checkpoint: Path) -> None:
    """Take the files of a checkpoint out of its stage's manifest."""
    file = checkpoint.parent / MANIFEST
    manifest = json.loads(file.read_text())
    manifest["files"] = [
        listed
        for listed in manifest["files"]
        if not listed["path"].startswith(f"{checkpoint.name}/")
    ]
    write_json(file, manifest)
