"""How much a plan's pre-trainings go through, and whether that is too little to pay."""

import json
from contextlib import suppress
from pathlib import Path

from flows.runner.stage_runner import Plan
from flows.stages.pretraining import resolve_preset
from flows.store.store import Stage
from model.presets import apply_settings
from model.pretraining.budget import describe_small_budget

LOADED = {"origin", "base"}
"""Inputs of a pre-training that begins with loaded weights."""


def count_training(stage: Stage) -> tuple[int, int] | None:
    """Return the steps and tokens of a pre-training; None where they are known only once what it
    reads is made, or once the training that it shall equal is counted.
    """
    told = stage.parameters
    if any(name.startswith("same_") for name in told):
        return None
    if "base" in stage.inputs and not told.get("steps"):
        return None  # as many as the epochs over the new shards take
    with suppress(LookupError):  # a stage of another graph than ours
        config = resolve_preset(stage).pretraining
        steps = told.get("steps") or config.steps
        return steps, steps * config.batch * find_length(stage)
    return None


def find_length(stage: Stage) -> int:
    """Return the tokens of a sequence of a pre-training."""
    shards = stage.inputs["shards"]
    about = {**shards.parameters, **shards.result}
    folder = Path(about["path"], "shards.json") if shards.name == "external" else None
    if folder and folder.exists():
        about = json.loads(folder.read_text())
    return int(about.get("max_length", resolve_preset(stage).max_length))


def find_small_budget(plan: Plan) -> str | None:
    """Return the warning of the first pre-training that is to be made from random weights with too
    few tokens, as far as its steps are known already; None if there is none.
    """
    for stage, is_complete in plan.stages:
        if stage.name != "pretraining" or is_complete or LOADED & stage.inputs.keys():
            continue
        if counted := count_training(stage):
            preset = apply_settings(resolve_preset(stage), {"steps": str(counted[0])})
            if warning := describe_small_budget(preset, find_length(stage)):
                return warning
    return None
