"""A state of training on disk: all of it, or not there.

A checkpoint is a folder `step-00000500` with state.safetensors (tensors) and state.json (numbers). It is written under
a temporary name, every file and the folder itself fsynced, then renamed, so that a folder of that name is whole
whatever happens while it is written. No pickle.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

TENSORS, NUMBERS = "state.safetensors", "state.json"
PREFIX, TEMPORARY = "step-", "writing-"


@dataclass(frozen=True)
class State:
    step: int
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


def save(folder: Path, state: State) -> Path:
    """Writes the state as <folder>/step-…; what a write that failed left behind is removed."""
    final = folder / f"{PREFIX}{state.step:08}"
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
    except OSError:
        _clear(temporary)
        raise
    return final


def load(path: Path) -> State:
    numbers = json.loads((path / NUMBERS).read_text())
    return State(numbers["step"], load_file(path / TENSORS), numbers)


def found(folder: Path) -> list[Path]:
    """The whole checkpoints of a folder, oldest first."""
    return sorted(folder.glob(f"{PREFIX}*")) if folder.exists() else []


def prune(folder: Path, keep: int, best_step: int | None = None) -> None:
    """Removes all but the newest `keep` and the best, and what interrupted writes left."""
    best = f"{PREFIX}{best_step:08}" if best_step is not None else None
    for path in found(folder)[:-keep]:
        if path.name != best:
            _clear(path)
    for path in folder.glob(f"{TEMPORARY}*"):
        _clear(path)


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
