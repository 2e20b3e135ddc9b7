"""Where a killed training goes on: everything that decides its next step, random numbers included."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from model.atomic_file import atomic_path
from model.finetuning.attempt import Attempt


@dataclass
class Position:
    """How far a training is."""

    step: int = 0
    worse: int = 0
    """Evaluations since the best one."""
    losses: list[Tensor] = field(default_factory=list)
    """Of the steps since the last evaluation."""


def save(
    file: Path, network: nn.Module, optimizer: torch.optim.Optimizer, attempt: Attempt, position: Position
) -> None:
    """Whole or not at all. `network`: all that learns."""
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


def step_of(file: Path) -> int:
    """The step a training goes on from; 0 where nothing was saved."""
    if not file.exists():
        return 0
    return int(torch.load(file, map_location="cpu", weights_only=True, mmap=True)["numbers"]["step"])


def resume(
    file: Path | None, network: nn.Module, optimizer: torch.optim.Optimizer, attempt: Attempt, device: torch.device
) -> Position:
    """Where to go on from; the start where nothing was saved."""
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
