"""The start weights are google's."""

import math

import pytest
import torch

from amazon_electra.model.pretraining.network.electra import Electra
from amazon_electra.model.pretraining.network.encoder import initialize_weights
from amazon_electra.model.recipes import RECIPES


@pytest.fixture(scope="module")
def weights():
    recipe = RECIPES["small"]
    model = Electra(500, recipe.architecture, recipe.pretraining)
    initialize_weights(model, seed=0)
    return dict(model.named_parameters())


@pytest.mark.parametrize(
    "name", ["discriminator.project", "generator.project", "discriminator_head.out"]
)
def test_layers_start_by_glorot(weights, name):
    """tf.layers.dense without kernel_initializer, as google calls it for these three."""
    weight = weights[f"{name}.weight"]
    limit = math.sqrt(6 / sum(weight.shape))
    assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1)
    assert 0.9 * limit < weight.abs().max() <= limit


@pytest.mark.parametrize(
    "name",
    ["embeddings.word", "discriminator.layers.0.qkv.weight", "discriminator_head.dense.weight"],
)
def test_the_others_start_truncated_at_two_deviations(weights, name):
    weight = weights[name]
    assert weight.abs().max() <= 0.04
    assert weight.std().item() == pytest.approx(0.02 * 0.88, rel=0.05)


def test_biases_and_norms_change_nothing_at_the_start(weights):
    assert all(not p.any() for name, p in weights.items() if name.endswith("bias"))
    assert torch.equal(weights["embeddings.norm.weight"], torch.ones(128))
