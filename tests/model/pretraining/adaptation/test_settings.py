"""Settings of a training from loaded weights; test_published_kinds.py resumes with them."""

import pytest
import torch
from safetensors.torch import load_file

from amazon_electra.model.device import open_device
from amazon_electra.model.pretraining.assembly import build_training
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.initial_weights import Origin
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.encoders.checkpoints import write_checkpoint
from tests.model.pretraining.adaptation.published import train, write_all


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("made"))


def read_weights(output):
    """Return the weights of the encoder that a run wrote."""
    return load_file(output / "encoder" / "model.safetensors")


def read_origin(made):
    """Return the trunk's weights in `made` by the names in `read_weights`."""
    tensors = load_file(made / "bert" / "model.safetensors")
    trunk = {name: tensor for name, tensor in tensors.items() if name.startswith("bert.")}
    return {name.replace("bert.", "electra.", 1): tensor for name, tensor in trunk.items()}


def test_the_trunk_has_its_own_rate(made, tmp_path):
    train(made, tmp_path, trunk_learning_rate=1e-6, steps=5)
    trained = read_weights(tmp_path)
    moves = [float((trained[n] - t).abs().max()) for n, t in read_origin(made).items()]
    assert 0 < max(moves) < 1e-4


def test_what_is_written_is_the_average(made, tmp_path):
    train(made, tmp_path / "own")
    train(made, tmp_path / "mean", origin_average=0.25)
    own, mean = read_weights(tmp_path / "own"), read_weights(tmp_path / "mean")
    for name, origin in read_origin(made).items():
        torch.testing.assert_close(mean[name], 0.25 * origin + 0.75 * own[name])
    before = read_weights(tmp_path / "mean")
    train(made, tmp_path / "mean", origin_average=0.25)  # done already: written again
    after = read_weights(tmp_path / "mean")
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


def build_head_bias(made, encoder, output):
    shards, origin = Shards.open(made / "shards"), Origin(encoder)
    settings = origin.read_settings() | {"objective": "mlm"}
    recipe = apply_settings(RECIPES["sample"], settings)
    training = build_training(recipe, shards, open_device("cpu", "fp32"), output, origin=origin)
    return training.model.encoder_head.bias.detach()


def test_a_new_head_begins_with_the_frequencies(made, tmp_path):
    bias = build_head_bias(made, write_checkpoint(tmp_path / "trunk"), tmp_path / "output")
    assert bias.exp().sum() == pytest.approx(1.0, abs=1e-5)
    rows = Shards.open(made / "shards").read_groups(Shards.open(made / "shards").row_groups)
    counts = torch.zeros(len(bias))
    for ids, length in zip(rows.input_ids, rows.lengths, strict=True):
        counts += torch.bincount(torch.from_numpy(ids[:length].astype(int)), minlength=len(bias))
    assert torch.equal(counts.argsort(stable=True), bias.argsort(stable=True))
    assert bias[counts == 0].max() < bias[counts > 0].min()


def test_a_published_head_is_left_as_it_is(made, tmp_path):
    bias = build_head_bias(made, made / "bert", tmp_path)
    published = load_file(made / "bert" / "model.safetensors")["cls.predictions.bias"]
    assert torch.equal(bias, published)
