"""Where a killed training goes on: everything that decides its next step, random numbers included."""

import os
from pathlib import Path

import torch
from torch import nn

from model.finetuning.attempt import Attempt


def save(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, attempt: Attempt, step: int, worse: int
) -> None:
    """Whole or not at all. `worse`: evaluations since the best one."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "best": attempt.state,
        "numbers": {"dev": attempt.dev, "best_step": attempt.best_step, "step": step, "worse": worse},
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    torch.save(state, temporary)
    os.replace(temporary, file)


def resume(file: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, attempt: Attempt) -> tuple[int, int]:
    """Step and evaluations without improvement to go on from; 0 and 0 where nothing was saved."""
    if file is None or not file.exists():
        return 0, 0
    state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    attempt.state, numbers = state["best"], state["numbers"]
    attempt.dev, attempt.best_step = numbers["dev"], numbers["best_step"]
    torch.set_rng_state(state["random"])
    if state["random_cuda"]:
        torch.cuda.set_rng_state_all(state["random_cuda"])
    return numbers["step"], numbers["worse"]
