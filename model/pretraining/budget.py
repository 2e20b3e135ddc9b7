"""Reads how long a run lasts: a time or a number of operations instead of steps."""

import math
import re
from dataclasses import dataclass

from beam_jobs.core.errors import UserError
from model.recipes import Recipe

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
    """Return a warning where training from random weights is so short that it has never paid on
    real reviews, with what does; None for longer ones.

    `length` is that of the sequences, in tokens. Source: docs/results.md, "When does
    pre-training from nothing pay?".
    """
    config = recipe.pretraining
    tokens = config.steps * config.batch * length
    if tokens > MEASURED_TOKENS:
        return None
    cheapest = " Of the objectives mlm costs least." if config.objective == "electra" else ""
    return (
        f"recipe {recipe.name} with {tokens / 1e6:.3g} M tokens: on real reviews no pre-training "
        f"from random weights of up to {MEASURED_TOKENS / 1e6:.0f} M tokens has been better than "
        "none (polarity with 200 labels: 7.9 points less than untrained after 4 M tokens of masked "
        "language modelling, 1.3 less after 64 M; ELECTRA is no better: docs/results.md). "
        "What pays is a published encoder: `start_from`."
        f"{cheapest}"
    )
