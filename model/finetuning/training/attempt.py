"""Keep what one training came to, until the best one is known."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from beam_jobs.job.files import write_json


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


def rank_dev_metrics(dev: Mapping[str, float]) -> tuple[float, float]:
    """Return a key that compares by the first metric, then by the loss; no number is worst."""
    return _replace_nonfinite(next(iter(dev.values()), math.nan)), _replace_nonfinite(
        -dev.get("loss", 0.0)
    )


def _replace_nonfinite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def write_attempt(attempt: Attempt, folder: Path) -> None:
    """Write the weights first, then their scores: a folder with attempt.json is complete."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.clone() for name, t in attempt.state.items()}, folder / "state.safetensors")
    write_json(folder / "attempt.json", attempt.summarize())


def read_finished_attempt(folder: Path) -> Attempt | None:
    """Return the attempt that was written there; None where its training did not end."""
    from safetensors.torch import load_file

    if not (folder / "attempt.json").exists():
        return None
    return Attempt(
        **json.loads((folder / "attempt.json").read_text()),
        state=load_file(folder / "state.safetensors"),
    )
