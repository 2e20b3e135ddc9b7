"""A state of training on disk: all of it, or not there.

A checkpoint is a folder `step-00000500` with state.safetensors (tensors) and state.json (numbers). It is written under
a temporary name, every file and the folder itself fsynced, then renamed, so that a folder of that name is whole
whatever happens while it is written. No pickle.
"""

import json
import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.command import UserMistake

TENSORS, NUMBERS = "state.safetensors", "state.json"
PREFIX, TEMPORARY, DAMAGED = "step-", "writing-", "damaged-"


@dataclass(frozen=True)
class State:
    step: int
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


def path_of(folder: Path, step: int) -> Path:
    return folder / f"{PREFIX}{step:08}"


def save(folder: Path, state: State) -> Path:
    """Writes the state as <folder>/step-…; what a write that failed left behind is removed."""
    final = path_of(folder, state.step)
    temporary = folder / f"{TEMPORARY}{final.name}"
    try:
        _clear(temporary)
        temporary.mkdir(parents=True)
        save_file(state.tensors, temporary / TENSORS)
        (temporary / NUMBERS).write_text(json.dumps({"step": state.step, **state.numbers}, indent=1))
        for path in (temporary / TENSORS, temporary / NUMBERS, temporary):
            sync(path)
        _clear(final)
        os.replace(temporary, final)
        sync(folder)
    except (OSError, SafetensorError):
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def load(path: Path) -> State:
    numbers = json.loads((path / NUMBERS).read_text())
    return State(numbers["step"], load_file(path / TENSORS), numbers)


def newest(folder: Path) -> State | None:
    """The state of the newest checkpoint; a damaged one is named on stderr, set aside as `damaged-step-…`, and the one
    before it taken."""
    kept = found(folder)
    for path in reversed(kept):
        try:
            return load(path)
        except (SafetensorError, ValueError, KeyError, FileNotFoundError) as error:
            aside = folder / f"{DAMAGED}{path.name}"
            _clear(aside)
            path.rename(aside)
            print(f"{path} is damaged ({error}); it is {aside.name} now, the one before it is taken", file=sys.stderr)
    if kept:
        raise UserMistake(f"{folder}: every checkpoint was damaged; run the same command again to begin anew")
    return None


def found(folder: Path) -> list[Path]:
    """The whole checkpoints of a folder, oldest first."""
    return sorted(folder.glob(f"{PREFIX}*")) if folder.exists() else []


def prune(folder: Path, keep: int, best_step: int | None = None) -> None:
    """Removes all but the newest `keep` and the best, and what interrupted writes left."""
    best = path_of(folder, best_step) if best_step is not None else None
    for path in found(folder)[:-keep]:
        if path != best:
            _clear(path)
    for path in folder.glob(f"{TEMPORARY}*"):
        _clear(path)


class Writer:
    """Writes checkpoints in a thread, one at a time, while training goes on; keeps the newest few and the best."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self._keep = folder, keep
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._waited = 0.0

    def write(self, state: State, best_step: int) -> None:
        """Begins to write a state nobody changes any more; waits only for the write before this one."""
        self.wait()
        self._thread = threading.Thread(target=self._work, args=(state, best_step), name="checkpoint")
        self._thread.start()

    def _work(self, state: State, best_step: int) -> None:
        try:
            save(self.folder, state)
            prune(self.folder, self._keep, best_step)
        except (OSError, SafetensorError) as error:
            self._error = error

    def wait(self) -> None:
        """Until what was begun is on disk."""
        started = time.monotonic()
        if self._thread:
            self._thread.join()
            self._thread = None
        self._waited += time.monotonic() - started
        if self._error:
            error, self._error = self._error, None
            kept = found(self.folder)
            raise UserMistake(
                f"no checkpoint could be written to {self.folder}: {getattr(error, 'strerror', None) or error}; "
                f"the last whole one is {kept[-1].name if kept else 'none'}: make room and run the same command again"
            ) from error

    def take_waited(self) -> float:
        """Seconds training was held up since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited


def sync(path: Path) -> None:
    """fsync of a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
