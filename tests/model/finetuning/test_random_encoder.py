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


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return Shards.open(write_shards(tmp_path_factory.mktemp("shards")))


def draw(folder: Path, seed: int = 3) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build_network("random", str(folder), find_task("polarity"))


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
def test_it_is_the_state_before_the_first_step(shards, settings, tmp_path):
    """The same seed gives the same weights, also with `project`, whose start is Glorot's."""
    recipe = apply_settings(RECIPES["sample"], SHAPE | settings | {"seed": "3"})
    network = draw(write_architecture(tmp_path / "architecture", recipe, shards))
    drawn = dict(network.named_parameters())
    for name, tensor in before_step_1(recipe, shards, tmp_path).items():
        assert torch.equal(drawn[name], tensor), name
