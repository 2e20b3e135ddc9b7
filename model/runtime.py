"""The loop of every training, and checkpoints, from which the same call continues to the bit."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from amazon_electra.beam_jobs.core.errors import UserError, refuse, require
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.model.device import Device

EXIT_TERMINATED = 128 + signal.SIGTERM
CHECKPOINT_SECONDS = 60.0
"""Between two checkpoints, where no setting says how many steps."""
TENSORS, NUMBERS = "state.safetensors", "state.json"
PREFIX, TEMPORARY = "step-", "writing-"


@dataclass(frozen=True)
class State:
    """The tensors and numbers of one moment of training."""

    step: int
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


class Checkpoints:
    """The checkpoints of a training, `step-00000500` in a folder: whole or absent, since they are
    fsynced and then renamed. A thread writes one at a time; the newest `keep` stay. Only a training
    of the same `identity` continues from them.
    """

    def __init__(self, folder: Path, keep: int = 1, identity: Mapping[str, Any] | None = None):
        self.folder, self._keep, self._identity = folder, keep, dict(identity or {})
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def write(self, state: State) -> None:
        """Begin to write a state that nobody changes any more, after the write before it."""
        self.wait()
        self._writing = self._thread.submit(self._write_and_prune, state)

    def _write_and_prune(self, state: State) -> None:
        numbers = {**state.numbers, "identity": self._identity}
        save_state(self.folder, State(state.step, state.tensors, numbers))
        for path in list_checkpoints(self.folder)[: -self._keep]:
            shutil.rmtree(path)
        for path in self.folder.glob(f"{TEMPORARY}*"):  # of a killed write
            shutil.rmtree(path)

    def wait(self) -> None:
        """Block until the write in progress is on disk; UserError if the disk refused it."""
        writing, self._writing = self._writing, None
        try:
            if writing:
                writing.result()
        except (OSError, SafetensorError) as error:
            last = [path.name for path in list_checkpoints(self.folder)][-1:] or ["none"]
            why = getattr(error, "strerror", None) or error
            raise UserError(
                f"{self.folder}: {why}; the last whole checkpoint is {last[0]}: make room and run "
                "the same command again"
            ) from error

    def find(self, device: Device) -> State | None:
        """Return the newest state, the same in every process, or None; UserError of another run."""
        step = find_newest_step(self.folder) if device.is_rank0 else -1
        step = int(device.all_reduce_max(step))
        if step < 0:
            return None
        path, output = build_path(self.folder, step), self.folder.parent
        is_shared = path.exists()
        require(is_shared, f"must be shared by all hosts: one lacks {path.name}", "output", output)
        state = load_state(path)
        now, then = self._identity, state.numbers["identity"]
        differing = [
            f"{name} was {then.get(name)!r:.14} and is {now.get(name)!r:.14}"
            for name in now | then
            if now.get(name) != then.get(name)
        ]
        why = f"has checkpoints of another run: {', '.join(differing)}"
        require(not differing, why, "output", output)
        return state


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
    device: Device,
) -> None:
    """Put what `copy_tensors` copied back; only a fused optimizer counts steps on the device."""
    on_cpu = set() if device.fused_optimizer else {"step"}
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
    return folder / f"{PREFIX}{step:08}"


def save_state(folder: Path, state: State) -> Path:
    """Write the state as <folder>/step-…; a write that fails leaves nothing behind."""
    final = build_path(folder, state.step)
    temporary = folder / f"{TEMPORARY}{final.name}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(state.tensors, temporary / TENSORS)
        numbers = json.dumps({"step": state.step, **state.numbers}, indent=1)
        (temporary / NUMBERS).write_text(numbers, encoding="utf-8")
        for path in (temporary / TENSORS, temporary / NUMBERS, temporary):
            sync_path(path)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(temporary, final)
        sync_path(folder)
    except (OSError, SafetensorError):
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def load_state(path: Path) -> State:
    """Read one checkpoint; UserError where the disk has damaged it."""
    kinds = SafetensorError, ValueError, KeyError, FileNotFoundError
    with refuse(*kinds, message=f"{path} is damaged ({{}}): remove it and run the command again"):
        numbers = read_json(path / NUMBERS)
        state = State(numbers["step"], load_file(path / TENSORS), numbers)
    return state


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the whole checkpoints of a folder, those with their numbers, oldest first."""
    return sorted(path.parent for path in folder.glob(f"{PREFIX}*/{NUMBERS}"))


def find_newest_step(folder: Path) -> int:
    return max((int(p.name.removeprefix(PREFIX)) for p in list_checkpoints(folder)), default=-1)


def sync_path(path: Path) -> None:
    """Flush a file or a folder to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Run:
    """A training; its subclasses say what a step is, what is logged, and what is kept."""

    device: Device
    checkpoints: Checkpoints | None
    stopping = False
    """Whether a SIGTERM came."""
    _kept_at = 0.0

    def is_over(self) -> bool:
        raise NotImplementedError

    def take_step(self) -> None:
        """Take one step, or none where a SIGTERM comes within it."""
        raise NotImplementedError

    def review_step(self, keeps: bool, stopping: bool) -> None:
        """Log and measure what is due, before the state is kept and all processes are stopping."""

    def copy_state(self) -> State | None:
        """Return a copy of the state, on the CPU, where it is worth keeping."""
        raise NotImplementedError

    def is_checkpoint_due(self) -> bool:
        return time.monotonic() >= self._kept_at + CHECKPOINT_SECONDS

    def run(self) -> None:
        """Take the steps that are left; the state of the last one, or the one of a SIGTERM, is kept
        in `checkpoints`. A SIGTERM ends the process with status 143.
        """
        self._kept_at = time.monotonic()
        is_main = threading.current_thread() is threading.main_thread()  # others get no signals
        previous = signal.signal(signal.SIGTERM, self._stop) if is_main else None
        try:
            while not self.is_over():
                self.take_step()
                stopping = self.device.all_reduce_max(self.stopping) > 0
                keeps = self.is_over() or stopping or self.is_checkpoint_due()
                self.review_step(keeps, stopping)
                if (keeps or self.is_over()) and self.checkpoints and self.device.is_rank0:
                    if state := self.copy_state():
                        self.checkpoints.write(state)
                    self._kept_at = time.monotonic()
                if stopping and not self.is_over():
                    raise SystemExit(EXIT_TERMINATED)
        finally:
            if self.checkpoints:
                self.checkpoints.wait()
            if is_main:
                signal.signal(signal.SIGTERM, previous)

    def _stop(self, *_: Any) -> None:
        self.stopping = True


class Meter:
    """The growth of a clock between two calls."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read, self._begun = read, read()

    def take(self) -> float:
        begun, self._begun = self._begun, self._read()
        return self._begun - begun
