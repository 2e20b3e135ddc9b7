"""Reads how long a run lasts: a time or a number of operations instead of steps."""

import math
import re
from dataclasses import dataclass

from amazon_electra.beam_jobs.core.errors import UserError

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
