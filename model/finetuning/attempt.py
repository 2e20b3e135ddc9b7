"""What one training came to, and which of two is better."""

import math
from dataclasses import dataclass, field

import torch


@dataclass
class Attempt:
    """What one learning rate came to."""

    learning_rate: float
    dev: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    best_step: int = 0
    examples_per_second: float = 0.0
    state: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    def rank(self) -> tuple[float, float]:
        """Larger is better."""
        return rank(self.dev)


def rank(dev: dict[str, float]) -> tuple[float, float]:
    main = next(iter(dev.values()), -math.inf)
    return (-math.inf if math.isnan(main) else main, -dev.get("loss", 0.0))
