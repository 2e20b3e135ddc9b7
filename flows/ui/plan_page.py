"""What a graph is going to make, as lines: its stages, how much its pre-trainings go
through, and whether that is too little to pay.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from amazon_electra.flows.stages.pretraining import resolve_recipe
from amazon_electra.flows.store.stage import Stage

MEASURED_TOKENS = 64e6
"""Of the longest pre-training from random weights that was measured, which did not pay:
docs/results.md, "When does pre-training from nothing pay?".
"""
Stages = Sequence[tuple[Stage, bool]]
"""Each once, and whether it is complete."""
OPEN_BUDGETS = ("same_flops_as", "same_tokens_as")
"""Parameters of a pre-training from which its steps follow once other stages are made."""


def count_training(stage: Stage) -> tuple[int, int] | None:
    """Return the steps and tokens of a pre-training; None where they are known only once what it
    reads is made, or once the training that it shall equal is counted.
    """
    parameters = stage.parameters
    if not parameters.get("steps") and any(parameters.get(budget) for budget in OPEN_BUDGETS):
        return None
    with suppress(LookupError):  # a stage of another graph than ours
        config = resolve_recipe(stage).pretraining
        steps = parameters.get("steps") or config.steps
        return steps, steps * config.batch * find_length(stage)
    return None


def find_length(stage: Stage) -> int:
    """Return the tokens of a sequence of a pre-training."""
    shards = stage.inputs["shards"]
    about = {**shards.parameters, **shards.result}
    folder = Path(about["path"], "shards.json") if shards.name == "external" else None
    if folder and folder.exists():
        about = json.loads(folder.read_text(encoding="utf-8"))
    return int(about.get("max_length", resolve_recipe(stage).max_length))


def find_small_budget(stages: Stages) -> str | None:
    """Return a line on the first pre-training from random weights that is so short that none has
    paid on real reviews, as far as its steps are known; None without one, or for `sample:`.
    """
    dumps = [stage for stage, _ in stages if stage.name == "dump"]
    if dumps and all(dump.result.get("synthetic") for dump in dumps):
        return None
    for stage, is_complete in stages:
        if stage.name != "pretraining" or is_complete or "origin" in stage.inputs:
            continue
        if (counted := count_training(stage)) and counted[1] <= MEASURED_TOKENS:
            return (
                f"{counted[1] / 1e6:.3g} M tokens from random weights: up to "
                f"{MEASURED_TOKENS / 1e6:.0f} M no such pre-training gained on real reviews; a "
                "published encoder does: `pretraining.start_from`"
            )
    return None


def format_total(stages: Stages) -> str:
    """Return how many stages are to do, in one line."""
    complete = sum(is_complete for _, is_complete in stages)
    todo = len(stages) - complete
    if not todo:
        return "nothing to do: every stage is complete"
    return f"{todo} stage{'s' if todo > 1 else ''} to do, {complete} complete"


def list_lines(stages: Stages) -> list[str]:
    """Return a line for each stage: its state, kind, fingerprint and label, and what a training
    goes through; then the total, and what speaks against the plan.
    """
    lines = []
    for stage, is_complete in stages:
        state, about = "complete" if is_complete else "to do", ""
        if stage.name == "pretraining" and (counted := count_training(stage)):
            about = f", {counted[0]:,} steps, {counted[1] / 1e6:,.1f} M tokens"
        lines.append(f"{state:<10}{stage.name:<24}{stage.fingerprint}  {stage.label}{about}")
    lines.append(format_total(stages))
    if warning := find_small_budget(stages):
        lines.append(f"warning: {warning}")
    return lines
