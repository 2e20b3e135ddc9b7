"""What one training came to, which of two is better, and where it is kept until the best one is known."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from model.json_file import write_json


@dataclass
class Attempt:
    """What one learning rate came to."""

    learning_rate: float
    dev: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    best_step: int = 0
    examples_per_second: float = 0.0
    diverged: bool = False
    """Given up because loss, weights or score were no numbers any more; the best state before that is kept."""
    state: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    """Of the network where it was best on dev; empty where it diverged before the first evaluation."""

    def rank(self) -> tuple[float, float]:
        """Larger is better."""
        return rank(self.dev)

    def summary(self) -> dict[str, Any]:
        """All but the weights."""
        names = ("learning_rate", "dev", "steps", "best_step", "examples_per_second", "diverged")
        return {name: getattr(self, name) for name in names}


def rank(dev: Mapping[str, float]) -> tuple[float, float]:
    """By the first metric, then by the loss; what is no number is worst."""
    return _finite(next(iter(dev.values()), math.nan)), _finite(-dev.get("loss", 0.0))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def keep(attempt: Attempt, folder: Path) -> None:
    """Weights first, then what they scored: a folder with a summary is complete."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.clone() for name, tensor in attempt.state.items()}, folder / "state.safetensors")
    write_json(folder / "attempt.json", attempt.summary())


def finished(folder: Path) -> Attempt | None:
    """What was kept there; None where the training did not come to its end."""
    from safetensors.torch import load_file

    if not (folder / "attempt.json").exists():
        return None
    return Attempt(**json.loads((folder / "attempt.json").read_text()), state=load_file(folder / "state.safetensors"))
