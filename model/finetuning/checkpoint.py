"""Keep what trainings came to, so that a killed fine-tuning goes on: the outcome of each learning
rate, and everything that decides the next step of one, random numbers included.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.device import Device
from amazon_electra.model.evaluation.metrics import rank_dev_metrics
from amazon_electra.model.pretraining import checkpoint

BEST, CUDA = "best.", "random_cuda."
"""What the names of the weights that were best, and of random numbers of GPUs, begin with."""


@dataclass
class Attempt:
    """The outcome of one learning rate."""

    learning_rate: float
    dev: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    best_step: int = 0
    examples_per_second: float = 0.0
    diverged: bool = False
    """True where loss, weights or score were no numbers any more; the best state before that stays.
    """
    state: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    """The weights that were best on dev; empty where training diverged before."""

    def rank_key(self) -> tuple[float, float]:
        """Return a key by which attempts are compared; larger is better."""
        return rank_dev_metrics(self.dev)

    def summarize(self) -> dict[str, Any]:
        """Return all but the weights."""
        names = ("learning_rate", "dev", "steps", "best_step", "examples_per_second", "diverged")
        return {name: getattr(self, name) for name in names}


def write_attempt(attempt: Attempt, folder: Path) -> None:
    """Write the weights first, then their scores: a folder with attempt.json is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.clone() for name, t in attempt.state.items()}, folder / "state.safetensors")
    write_json(folder / "attempt.json", attempt.summarize())


def read_finished_attempt(folder: Path) -> Attempt | None:
    """Return the attempt that was written there; None where its training did not end."""
    if not (folder / "attempt.json").exists():
        return None
    return Attempt(
        **json.loads((folder / "attempt.json").read_text(encoding="utf-8")),
        state=load_file(folder / "state.safetensors"),
    )


@dataclass
class Position:
    """How far a training has come."""

    step: int = 0
    losses: list[Tensor] = field(default_factory=list)
    """Losses of the steps since the last evaluation."""


def save_checkpoint(
    folder: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    attempt: Attempt,
    position: Position,
) -> None:
    """Write the checkpoint whole or not at all, in the place of the one before; `network` is all
    that learns.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    tensors = {
        **checkpoint.copy_tensors(network, optimizer),
        **{f"{BEST}{name}": tensor.contiguous() for name, tensor in attempt.state.items()},
        "losses": torch.stack(position.losses).cpu() if position.losses else torch.empty(0),
        "random": torch.get_rng_state(),
        **{f"{CUDA}{device}": state for device, state in enumerate(cuda)},
    }
    numbers = {"dev": attempt.dev, "best_step": attempt.best_step}
    checkpoint.save_state(folder, checkpoint.State(position.step, tensors, numbers))
    checkpoint.prune_checkpoints(folder, keep=1)


def read_checkpoint_step(folder: Path) -> int:
    """Return the step a training goes on from; 0 where nothing was saved."""
    state = checkpoint.load_newest_state(folder)
    return state.step if state else 0


def resume_training(
    folder: Path | None,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    attempt: Attempt,
    device: Device,
) -> Position:
    """Load the checkpoint and return its position; the start where nothing was saved."""
    state = checkpoint.load_newest_state(folder) if folder else None
    if state is None:
        return Position()
    tensors = state.tensors
    checkpoint.restore_tensors(tensors, network, optimizer, device.fused_optimizer)
    attempt.state = {
        name.removeprefix(BEST): tensor for name, tensor in tensors.items() if name.startswith(BEST)
    }
    attempt.dev, attempt.best_step = state.numbers["dev"], state.numbers["best_step"]
    torch.set_rng_state(tensors["random"])
    if cuda := [tensors[f"{CUDA}{i}"] for i in range(len(tensors)) if f"{CUDA}{i}" in tensors]:
        torch.cuda.set_rng_state_all(cuda)
    return Position(state.step, list(tensors["losses"].to(device.torch)))
