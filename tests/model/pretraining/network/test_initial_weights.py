"""Beginning with other people's weights."""

import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ElectraForMaskedLM

from amazon_electra.model.pretraining.network.electra import Electra
from amazon_electra.model.pretraining.network.encoder import initialize_weights
from amazon_electra.model.pretraining.network.initial_weights import Origin, load_weights
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.pretraining.runs import add_generator, pretrain, read_curve
from tests.refusals import refuses

SHAPE = {"layers": "2", "hidden": "32", "intermediate": "64", "embedding": "16", "heads": "2"}
SETTINGS = SHAPE | {"batch": 8, "dropout": 0, "log_every": 1, "precision": "fp32"}


@pytest.fixture
def recipe():
    return apply_settings(RECIPES["sample"], SHAPE)


def fresh(recipe, size, seed=0):
    model = Electra(size, recipe.architecture, recipe.pretraining)
    initialize_weights(model, seed)
    return model


def run_steps(shards, output, *words, steps=3, **settings):
    return pretrain(shards, output, *words, steps=steps, **SETTINGS | settings)


def test_continuing_from_transformers_folders(shards, tmp_path):
    """What we exported is read back, both networks; the loss goes on where it was."""
    first = run_steps(shards, tmp_path / "first", learning_rate=5e-3, steps=60)
    begun = ["--start_from", add_generator(first["discriminator"], first["generator"])]
    run_steps(shards, tmp_path / "second", *begun, learning_rate=1e-6)
    curves = (read_curve(tmp_path / name, "generator_loss") for name in ("first", "second"))
    before, after = ([*curve.values()] for curve in curves)
    assert after[0] == pytest.approx(before[-1], abs=0.25)
    assert after[0] < before[0] - 0.4


def test_a_masked_language_model_becomes_both_networks(shards, tmp_path):
    """Its first layers and its head are the generator, all of it the discriminator."""
    result = run_steps(shards, tmp_path / "first", objective="mlm")
    wide = {"generator_multiplier": "1", "generator_layers": "1"}
    recipe = apply_settings(RECIPES["sample"], SHAPE | wide)
    model = fresh(recipe, 100, seed=9)
    origin = Origin(Path(result["encoder"]))
    new = load_weights(model, recipe.architecture, origin, shards / "vocabulary")
    assert new
    assert all(name.startswith("discriminator_head") for name in new)
    theirs = ElectraForMaskedLM.from_pretrained(result["encoder"])
    first, second = (layer.output.dense.weight for layer in theirs.electra.encoder.layer)
    torch.testing.assert_close(model.generator.layers[0].down.weight, first)
    torch.testing.assert_close(model.discriminator.layers[0].down.weight, first)
    torch.testing.assert_close(model.discriminator.layers[1].down.weight, second)
    head = theirs.generator_predictions.dense.weight
    torch.testing.assert_close(model.generator_head.dense.weight, head)


@pytest.fixture(scope="module")
def made(shards, tmp_path_factory):
    """Shards, and the discriminator of a run on them."""
    result = run_steps(shards, tmp_path_factory.mktemp("made"), steps=1)
    return shards, Path(result["discriminator"])


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ("layers=3", "layers"),
        ("heads=4", "heads"),
        ("layer_norm_eps=1e-3", "layer_norm_eps"),
        ("intermediate=128", "intermediate"),
        ("type_vocabulary_size=3", "embeddings.token_type"),
    ],
)
def test_weights_of_another_shape_are_refused_by_name(recipe, made, other, named):
    shards, discriminator = made
    other, begun = apply_settings(recipe, dict([other.split("=")])), Origin(discriminator)
    with refuses(f" {discriminator}: {named}"):
        load_weights(fresh(other, 100), other.architecture, begun, shards / "vocabulary")


def without_a_weight(folder):
    held = load_file(folder / "model.safetensors")
    del held["electra.encoder.layer.1.output.dense.bias"]
    save_file(held, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (without_a_weight, "discriminator.layers.1."),
        (lambda folder: (folder / "vocab.txt").write_text("[UNK]\n" * 101), "vocabulary"),
    ],
)
def test_what_is_missing_is_named(recipe, made, tmp_path, spoil, named):
    shards, discriminator = made
    copy = Path(shutil.copytree(discriminator, tmp_path / "copy"))
    spoil(copy)
    with refuses(f" {copy}: ", named):
        load_weights(fresh(recipe, 100), recipe.architecture, Origin(copy), shards / "vocabulary")


def test_layers_start_as_googles():
    """By Glorot where tf.layers.dense has no kernel_initializer, else truncated at two deviations;
    biases and norms change nothing.
    """
    recipe = RECIPES["small"]
    model = Electra(500, recipe.architecture, recipe.pretraining)
    initialize_weights(model, seed=0)
    weights = dict(model.named_parameters())
    for name in ("discriminator.project", "generator.project", "discriminator_head.out"):
        weight = weights[f"{name}.weight"]
        limit = math.sqrt(6 / sum(weight.shape))
        assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1)
        assert 0.9 * limit < weight.abs().max() <= limit
    for name in ("embeddings.word", "discriminator.layers.0.qkv.weight"):
        assert weights[name].abs().max() <= 0.04
        assert weights[name].std().item() == pytest.approx(0.02 * 0.88, rel=0.05)
    assert all(not p.any() for name, p in weights.items() if name.endswith("bias"))
    assert torch.equal(weights["embeddings.norm.weight"], torch.ones(128))
