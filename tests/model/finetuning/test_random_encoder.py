"""An untrained encoder is what the pre-training of its architecture began with; heads are not."""

from pathlib import Path

import pytest
import torch

from amazon_electra.model.device import open_device
from amazon_electra.model.encoders import export
from amazon_electra.model.encoders.config import write_architecture
from amazon_electra.model.encoders.weight_mapping import map_names
from amazon_electra.model.finetuning.network import build_network
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.pretraining.assembly import build_training
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.recipes import RECIPES, Recipe, apply_settings
from tests.model.synthetic_shards import write_shards

SHAPE = {"layers": "1", "hidden": "64", "intermediate": "128", "precision": "fp32"}


def before_step_1(recipe: Recipe, shards: Shards, folder: Path) -> dict[str, torch.Tensor]:
    """Return the encoder of a pre-training that has not made a step."""
    training = build_training(recipe, shards, open_device("cpu", "fp32"), folder)
    model, shape = training.model, recipe.architecture
    names = map_names(
        "discriminator" if recipe.pretraining.objective == "electra" else "generator",
        shape.layers,
        shape.embedding != shape.hidden,
        model.trunk_name,
    )
    weights = export.convert_to_transformers(dict(model.named_parameters()), names)
    if not recipe.pretraining.has_segments:
        export.copy_type_row(weights)
    return {name: tensor for name, tensor in weights.items() if name.startswith("electra.")}


@pytest.mark.parametrize(
    "settings",
    [
        {"embedding": "32"},
        {"embedding": "32", "objective": "mlm+nsp", "initializer_range": "0.05"},
        {"embedding": "64", "generator_multiplier": "0.25", "segment_probability": "0"},
    ],
    ids=lambda settings: " ".join(f"{name}={value}" for name, value in settings.items()),
)
def test_it_is_the_state_before_the_first_step(settings, tmp_path):
    """The same seed gives the same weights, also with `project`, whose start is Glorot's."""
    shards = Shards.open(write_shards(tmp_path / "shards"))
    recipe = apply_settings(RECIPES["sample"], SHAPE | settings | {"seed": "3"})
    architecture = write_architecture(tmp_path / "architecture", recipe, shards)
    torch.manual_seed(3)
    network = build_network("random", str(architecture), find_task("polarity"))
    drawn = dict(network.named_parameters())
    for name, tensor in before_step_1(recipe, shards, tmp_path).items():
        assert torch.equal(drawn[name], tensor), name
