"""What a graph is going to make: a line for each stage, with how much a pre-training reads."""

from collections.abc import Sequence

from amazon_electra.beam_jobs.config import ShardsConfig
from amazon_electra.flows.stages.pretraining import resolve_recipe
from amazon_electra.flows.store.stage import Stage

Stages = Sequence[tuple[Stage, bool]]
"""Each once, and whether it is complete."""


def describe_training(stage: Stage) -> str:
    """Return the steps and tokens of a pre-training, as far as they are known before the training
    that it shall equal, or shards from elsewhere, are read.
    """
    parameters, recipe = stage.parameters, resolve_recipe(stage)
    steps, shards = parameters.get("steps"), stage.inputs["shards"]
    if not steps and (parameters.get("same_flops_as") or parameters.get("same_tokens_as")):
        return ""
    steps = steps or recipe.pretraining.steps
    if shards.name == "external":
        return f", {steps:,} steps"
    length = shards.parameters.get("max_length", ShardsConfig().max_length)
    return f", {steps:,} steps, {steps * recipe.pretraining.batch * length / 1e6:,.1f} M tokens"


def format_total(stages: Stages) -> str:
    """Return how many stages are to do, in one line."""
    complete = sum(is_complete for _, is_complete in stages)
    todo = len(stages) - complete
    if not todo:
        return "nothing to do: every stage is complete"
    return f"{todo} stage{'s' if todo > 1 else ''} to do, {complete} complete"


def list_lines(stages: Stages) -> list[str]:
    """Return a line for each stage: its state, kind, fingerprint and label, and what a training
    goes through; then the total.
    """
    lines = []
    for stage, is_complete in stages:
        state = "complete" if is_complete else "to do"
        about = describe_training(stage) if stage.name == "pretraining" else ""
        lines.append(f"{state:<10}{stage.name:<24}{stage.fingerprint}  {stage.label}{about}")
    return [*lines, format_total(stages)]
