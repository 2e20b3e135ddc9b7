"""Reads how long a run lasts: a time or a number of operations instead of steps."""

import math
import re
from dataclasses import dataclass

from beam_jobs.job.errors import UserError
from model.presets import Preset

ELECTRA_PAYS_TOKENS = 64e6  # below, MLM was better wherever both were measured: docs/results.md
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
            f"--budget {text}: write a time (45s, 30min, 2h, 1d) or operations (1.5e15flops)"
        )
    number = float(match[1])
    if not 0 < number < math.inf:
        raise UserError(f"--budget {text}: must be more than 0, and finite")
    return (
        Budget(flops=number) if match[2] == "flops" else Budget(seconds=number * SECONDS[match[2]])
    )


def count_affordable_steps(flops: float, flops_per_step: float) -> int:
    """Return how many whole steps a number of operations pays for."""
    if flops < flops_per_step:
        raise UserError(f"--budget {flops:.3g}flops: one step takes {flops_per_step:.3g}")
    return int(flops / flops_per_step)


def describe_small_budget(preset: Preset, length: int) -> str | None:
    """Return a warning if another objective than the preset's would pay at its number of steps.

    `length` is that of the sequences, in tokens.
    """
    config = preset.pretraining
    tokens = config.steps * config.batch * length
    if config.objective != "electra" or tokens >= ELECTRA_PAYS_TOKENS:
        return None
    return (
        f"preset {preset.name} with {tokens / 1e6:.3g} M tokens: below about "
        f"{ELECTRA_PAYS_TOKENS / 1e6:.0f} M tokens masked language modelling has beaten ELECTRA "
        "(16 M tokens of real reviews at equal cost, 800 labels: 70.6% against 65.8%, "
        "docs/results.md); --set objective=mlm would pay"
    )
