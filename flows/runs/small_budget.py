"""Says of a plan that what it pre-trains is too little to pay."""

from contextlib import suppress

from flows.runner.stage_runner import Plan
from flows.runner.store import Stage
from flows.runs.estimate import find_length
from flows.stages.pretraining import resolve_preset
from model.presets import apply_settings
from model.pretraining.budget import describe_small_budget

LOADED = {"origin", "base"}
"""Inputs of a pre-training that begins with loaded weights."""


def find_small_budget(plan: Plan) -> str | None:
    """Return the warning of the first pre-training that is to be made from random weights with too
    few tokens, as far as its steps are known already; None if there is none.
    """
    for stage, is_complete in plan.stages:
        if stage.name == "pretraining" and not is_complete and not LOADED & stage.inputs.keys():
            with suppress(LookupError):  # a stage of another graph than ours
                if warning := describe_budget(stage):
                    return warning
    return None


def describe_budget(stage: Stage) -> str | None:
    """Return the warning of a pre-training; None where another one says how long it takes."""
    told, preset = stage.parameters, resolve_preset(stage)
    if any(name.startswith("same_") for name in told):
        return None
    if told["steps"]:
        preset = apply_settings(preset, {"steps": str(told["steps"])})
    return describe_small_budget(preset, find_length(stage))
