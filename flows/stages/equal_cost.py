"""The steps in which one pre-training costs as much as another."""

import json
from pathlib import Path

from amazon_electra.flows.stages.external import locate_stage
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.recipes import RECIPES, Recipe, apply_settings


def resolve_recipe(stage: Stage) -> Recipe:
    """Return the recipe of a pre-training with its settings; that of the smallest recipe where the
    stage is known by its fingerprint alone.
    """
    given = stage.parameters
    recipe = RECIPES[given.get("recipe", "sample")]
    return apply_settings(recipe, dict(given.get("settings", {})))


def count_equal_flops(own: Stage, other: Stage, store: Store) -> int:
    """Return the steps in which `own` computes as many matrix products as `other` on this kind of
    device.
    """
    mine, device = resolve_recipe(own), own.resources.device
    a_step = count_flops(store, own, mine, device) / mine.pretraining.steps
    return max(1, round(count_flops(store, other, resolve_steps(other), device) / a_step))


def count_equal_tokens(own: Stage, other: Stage, store: Store) -> int:
    """Return the steps in which `own` sees as many tokens as `other`: its shards may be filled
    less.
    """
    mine, theirs = resolve_recipe(own).pretraining, resolve_steps(other).pretraining
    tokens = theirs.steps * theirs.batch * count_tokens_per_sequence(store, other)
    return max(1, round(tokens / (mine.batch * count_tokens_per_sequence(store, own))))


def resolve_steps(pretraining: Stage) -> Recipe:
    """Return the recipe of a pre-training with the steps that it says itself."""
    recipe, steps = resolve_recipe(pretraining), pretraining.parameters["steps"]
    return apply_settings(recipe, {"steps": str(steps)}) if steps else recipe


def count_flops(store: Store, pretraining: Stage, recipe: Recipe, device: str) -> float:
    """Return the matrix products of a whole pre-training with these settings on this device."""
    from amazon_electra.model.device import expect_document_attention
    from amazon_electra.model.pretraining.assembly import estimate_sequence_flops
    from amazon_electra.model.pretraining.input.sequences import Shards

    within_documents = expect_document_attention(device, recipe.pretraining.precision)
    shards = Shards.open(Path(locate_stage(store, pretraining.inputs["shards"])))
    sequences = recipe.pretraining.steps * recipe.pretraining.batch
    return estimate_sequence_flops(recipe, shards, within_documents) * sequences


def count_tokens_per_sequence(store: Store, pretraining: Stage) -> float:
    """Return the tokens that a sequence of a pre-training's shards has on average."""
    shards = Path(locate_stage(store, pretraining.inputs["shards"]))
    about = json.loads((shards / "shards.json").read_text("utf-8"))
    return float(about["tokens"] / about["sequences"])
