"""Reads how long a run lasts: a time or a number of operations instead of steps."""

import math
import re
from dataclasses import dataclass

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.recipes import Recipe

MEASURED_TOKENS = 64e6  # of the longest pre-training that was measured: docs/results.md
SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Budget:
    """A time or a number of operations; one of the two is set."""

    seconds: float | None = None
    flops: float | None = None


def parse_budget(text: str) -> Budget:
    """Parse 30min, 2h, 45s, 1d, or operations in matrix products: 1.5e15flops."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*([a-z]+)", text.strip().lower())
    if not match or match[2] not in (*SECONDS, "flops"):
        raise UserError(
            "write a time (45s, 30min, 2h, 1d) or operations (1.5e15flops)", "budget", text
        )
    number = float(match[1])
    if not 0 < number < math.inf:
        raise UserError("must be more than 0, and finite", "budget", text)
    return (
        Budget(flops=number) if match[2] == "flops" else Budget(seconds=number * SECONDS[match[2]])
    )


def describe_small_budget(recipe: Recipe, length: int) -> str | None:
    """Return a line where training from random weights is so short that it has never paid on real
    reviews; None for longer ones.

    `length` is that of the sequences, in tokens. Source: docs/results.md, "When does
    pre-training from nothing pay?".
    """
    tokens = recipe.pretraining.steps * recipe.pretraining.batch * length
    if tokens > MEASURED_TOKENS:
        return None
    return (
        f"{tokens / 1e6:.3g} M tokens from random weights: up to {MEASURED_TOKENS / 1e6:.0f} M no "
        "such pre-training gained on real reviews; a published encoder does: `start_from`"
    )
