"""Checkpoints of training, whole or absent: `step-00000500`, fsynced, then renamed."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.device import Device
from amazon_electra.model.pretraining import VERSION
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.recipes import Recipe

TENSORS, NUMBERS = "state.safetensors", "state.json"
PREFIX, TEMPORARY, DAMAGED = "step-", "writing-", "damaged-"
# These change what is written or how the work is cut up, not what is learned.
FREE_SETTINGS = {
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep_checkpoints",
    "device_batch",
    "validate_sequences",
    "compile",
}
Identity = dict[str, Any]


def identify_run(recipe: Recipe, shards: Shards) -> Identity:
    """Return what must be the same for a checkpoint to be continued, but start weights and time."""
    settings = recipe.architecture.model_dump() | recipe.pretraining.model_dump()
    return {
        "version": VERSION,
        "vocabulary": shards.vocabulary_fingerprint,
        "shards": shards.fingerprint,
        **{name: value for name, value in settings.items() if name not in FREE_SETTINGS},
    }


def check_same_run(now: Identity, then: Identity, output: Path) -> None:
    """Raise UserError, which names the differences, if a checkpoint is of another run."""
    differing = [
        f"{name} was {then.get(name)!r:.14} and is {now.get(name)!r:.14}"
        for name in now | then
        if now.get(name) != then.get(name)
    ]
    why = f"has checkpoints of another run: {', '.join(differing)}"
    require(not differing, why, "output", output)


@dataclass(frozen=True)
class State:
    """The tensors and numbers of one moment of training."""

    step: int
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


def copy_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copy the weights and the optimizer's moments to the CPU."""
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    tensors = {f"model.{name}": parameter for parameter, name in names.items()}
    for parameter, moments in optimizer.state.items():
        for kind, tensor in moments.items():
            tensors[f"optimizer.{kind}.{names[parameter]}"] = tensor
    return {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}


def restore_tensors(
    tensors: Mapping[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    is_fused: bool,
) -> None:
    """Put what `copy_tensors` copied back; only a fused optimizer counts steps on the device."""
    on_cpu = set() if is_fused else {"step"}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
            optimizer.state[parameter] = {
                kind: tensors[f"optimizer.{kind}.{name}"].to(
                    "cpu" if kind in on_cpu else parameter.device
                )
                for kind in ("step", "exp_avg", "exp_avg_sq")
                if f"optimizer.{kind}.{name}" in tensors
            }


def build_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return folder / f"{PREFIX}{step:08}"


def save_state(folder: Path, state: State) -> Path:
    """Write the state as <folder>/step-…; a write that fails leaves nothing behind."""
    final = build_path(folder, state.step)
    temporary = folder / f"{TEMPORARY}{final.name}"
    try:
        _remove_folder(temporary)
        temporary.mkdir(parents=True)
        save_file(state.tensors, temporary / TENSORS)
        (temporary / NUMBERS).write_text(
            json.dumps({"step": state.step, **state.numbers}, indent=1), encoding="utf-8"
        )
        for path in (temporary / TENSORS, temporary / NUMBERS, temporary):
            sync_path(path)
        _remove_folder(final)
        os.replace(temporary, final)
        sync_path(folder)
    except (OSError, SafetensorError):
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def load_state(path: Path) -> State:
    """Read one checkpoint; a damaged one raises SafetensorError, ValueError or KeyError."""
    numbers = read_json(path / NUMBERS)
    return State(numbers["step"], load_file(path / TENSORS), numbers)


def load_newest_state(folder: Path) -> State | None:
    """Return the newest whole state; damaged ones are set aside as `damaged-step-…`."""
    kept = list_checkpoints(folder)
    for path in reversed(kept):
        try:
            return load_state(path)
        except (SafetensorError, ValueError, KeyError, FileNotFoundError) as error:
            aside = folder / f"{DAMAGED}{path.name}"
            _remove_folder(aside)
            path.rename(aside)
            print(f"{path} is damaged ({error}); it is {aside.name} now", file=sys.stderr)
    require(not kept, f"{folder}: every checkpoint was damaged; run it again to begin anew")
    return None


def find_state(folder: Path, device: Device, identity: Identity, output: Path) -> State | None:
    """Return the newest state, the same in every process, or None; UserError of another run."""
    state = load_newest_state(folder) if device.is_rank0 else None
    step = int(device.all_reduce_max(state.step if state else -1)[0])
    if step < 0:
        return None
    path = build_path(folder, step)
    is_shared = state or path.exists()
    require(is_shared, f"must be shared by all hosts: one lacks {path.name}", "output", output)
    state = state or load_state(path)
    check_same_run(identity, state.numbers["identity"], output)
    return state


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the whole checkpoints of a folder, those with their numbers, oldest first."""
    return sorted(path.parent for path in folder.glob(f"{PREFIX}*/{NUMBERS}"))


def prune_checkpoints(folder: Path, keep: int, best_step: int | None = None) -> None:
    """Remove all but the newest `keep` and the best, and the remains of interrupted writes."""
    best = build_path(folder, best_step) if best_step is not None else None
    for path in list_checkpoints(folder)[:-keep]:
        if path != best:
            _remove_folder(path)
    for path in folder.glob(f"{TEMPORARY}*"):
        _remove_folder(path)


class CheckpointWriter:
    """Writes checkpoints in a thread, one at a time; the newest `keep` and the best stay."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self._keep = folder, keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def write(self, state: State, best_step: int) -> None:
        """Begin to write a state that nobody changes any more, after the write before it."""

        def write_and_prune() -> None:
            save_state(self.folder, state)
            prune_checkpoints(self.folder, self._keep, best_step)

        self.wait()
        self._writing = self._thread.submit(write_and_prune)

    def wait(self) -> None:
        """Block until the write in progress is on disk; UserError if the disk refused it."""
        writing, self._writing = self._writing, None
        try:
            if writing:
                writing.result()
        except (OSError, SafetensorError) as error:
            last = [path.name for path in list_checkpoints(self.folder)][-1:] or "none"
            raise UserError(
                f"{self.folder}: {getattr(error, 'strerror', None) or error}; the last whole "
                f"checkpoint is {last[0]}: make room and run the same command again"
            ) from error


def sync_path(path: Path) -> None:
    """Flush a file or a folder to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
