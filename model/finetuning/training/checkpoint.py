"""Save and restore everything that decides the next step of a training, random numbers included."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from beam_jobs.job.files import atomic_path
from model.finetuning.training.attempt import Attempt


@dataclass
class Position:
    """How far a training has come."""

    step: int = 0
    worse: int = 0
    """Evaluations since the best one."""
    losses: list[Tensor] = field(default_factory=list)
    """Losses of the steps since the last evaluation."""


def save_checkpoint(
    file: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    attempt: Attempt,
    position: Position,
) -> None:
    """Write the checkpoint whole or not at all; `network` is all that learns."""
    state = {
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "best": attempt.state,
        "losses": torch.stack(position.losses).cpu() if position.losses else torch.empty(0),
        "numbers": {
            "dev": attempt.dev,
            "best_step": attempt.best_step,
            "step": position.step,
            "worse": position.worse,
        },
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as temporary:
        torch.save(state, temporary)


def read_checkpoint_step(file: Path) -> int:
    """Return the step a training goes on from; 0 where nothing was saved."""
    if not file.exists():
        return 0
    return int(
        torch.load(file, map_location="cpu", weights_only=True, mmap=True)["numbers"]["step"]
    )


def resume_training(
    file: Path | None,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    attempt: Attempt,
    device: torch.device,
) -> Position:
    """Load the checkpoint and return its position; the start where nothing was saved."""
    if file is None or not file.exists():
        return Position()
    state = torch.load(file, map_location="cpu", weights_only=True)
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    attempt.state, numbers = state["best"], state["numbers"]
    attempt.dev, attempt.best_step = numbers["dev"], numbers["best_step"]
    torch.set_rng_state(state["random"])
    if state["random_cuda"]:
        torch.cuda.set_rng_state_all(state["random_cuda"])
    return Position(numbers["step"], numbers["worse"], list(state["losses"].to(device)))
