"""How long a run lasts: a number of steps, a time, or a number of operations."""

import math
import re
from dataclasses import dataclass

from model.command import UserMistake

SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Budget:
    """One of the two is set."""

    seconds: float | None = None
    flops: float | None = None


def parse_budget(text: str) -> Budget:
    """30min, 2h, 45s, 1d, or operations by the published count: 1.5e15flops."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*([a-z]+)", text.strip().lower())
    if not match or match[2] not in (*SECONDS, "flops"):
        raise UserMistake(f"--budget {text}: write a time (45s, 30min, 2h, 1d) or operations (1.5e15flops)")
    number = float(match[1])
    if not 0 < number < math.inf:
        raise UserMistake(f"--budget {text}: must be more than 0, and finite")
    return Budget(flops=number) if match[2] == "flops" else Budget(seconds=number * SECONDS[match[2]])


def steps_for(flops: float, flops_per_step: float) -> int:
    """The whole steps a number of operations pays for."""
    if flops < flops_per_step:
        raise UserMistake(f"--budget {flops:.3g}flops: one step takes {flops_per_step:.3g}")
    return int(flops / flops_per_step)
