"""A new head begins with how frequent each entry is; a published one is taken as it is."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from amazon_electra.model.device import open_device
from amazon_electra.model.pretraining.assembly import build_training
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.initial_weights import Origin
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.pretraining.runs import TOKENIZER


def build_head_bias(made, encoder, output):
    shards, origin = Shards.open(made / "shards"), Origin(encoder)
    settings = origin.read_settings() | {"objective": "mlm"}
    recipe = apply_settings(RECIPES["sample"], settings)
    training = build_training(recipe, shards, open_device("cpu", "fp32"), output, origin=origin)
    return training.model.encoder_head.bias.detach()


def test_a_new_head_begins_with_the_frequencies(made, tmp_path):
    config = BertConfig.from_pretrained(made / "bert")
    BertModel(config).save_pretrained(tmp_path / "trunk")
    for name in TOKENIZER:
        shutil.copyfile(made / "bert" / name, tmp_path / "trunk" / name)
    bias = build_head_bias(made, tmp_path / "trunk", tmp_path / "output")
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
