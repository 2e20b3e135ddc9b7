"""Each kind of published encoder computes here what it computes in transformers."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional

from amazon_electra.model.pretraining.network.encoder import build_attention, initialize_weights
from amazon_electra.model.pretraining.network.initial_weights import Origin, load_weights
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.encoders.checkpoints import CHECKPOINTS, SIZE, write_checkpoint

WITH_HEAD = [
    name for name in CHECKPOINTS if "head" in name or "both" in name or "generator" in name
]


@pytest.fixture(autouse=True)
def exact_products():
    """A run in bf16 lets all later products of its process be narrower than fp32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def ids():
    return torch.randint(5, SIZE, (3, 20), generator=torch.Generator().manual_seed(1))


def make_batch(ids, types=None):
    one = torch.ones_like(ids)
    batch = {"documents": one, "positions": torch.arange(ids.shape[1]).expand_as(ids)}
    return batch | ({"types": types} if types is not None else {})


def load_here(folder, vocabulary, objective="mlm", size=SIZE):
    """Our model of the folder's shape with its weights, and what begins at random."""
    origin = Origin(folder)
    recipe = apply_settings(
        RECIPES["sample"], origin.read_settings() | {"objective": objective, "dropout": "0"}
    )
    network = find_objective(objective).load_network()
    model = network(size, recipe.architecture, recipe.pretraining)
    initialize_weights(model, 0)
    left = load_weights(model, recipe.architecture, origin, vocabulary)
    return model.eval(), left


def encode_here(model, ids, types=None):
    batch = make_batch(ids, types)
    embedded = model.embeddings(ids, batch["positions"], types)
    return model.encoder(embedded, build_attention(batch))


def encode_there(folder, ids, **more):
    with torch.no_grad():
        model = transformers.AutoModel.from_pretrained(folder).eval()
        return model(ids, attention_mask=torch.ones_like(ids), **more).last_hidden_state


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_hidden_states_are_those_of_transformers(what, tmp_path, ids):
    folder = write_checkpoint(tmp_path / "origin", what)
    model, left = load_here(folder, folder)
    states = encode_here(model, ids)
    torch.testing.assert_close(states, encode_there(folder, ids), atol=1e-5, rtol=0)
    assert all(name.startswith("encoder_head") for name in left)
    assert bool(left) == (what not in WITH_HEAD)
    if CHECKPOINTS[what][2] in ("bert", "electra"):
        types = (torch.arange(20) > 9).long().expand_as(ids)
        expected = encode_there(folder, ids, token_type_ids=types)
        torch.testing.assert_close(encode_here(model, ids, types), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("what", WITH_HEAD)
def test_the_published_head_predicts_as_in_transformers(what, tmp_path, ids):
    folder = write_checkpoint(tmp_path / "origin", what)
    model, _ = load_here(folder, folder)
    head = model.encoder_head
    logits = functional.linear(head(encode_here(model, ids)), model.embeddings.word, head.bias)
    published = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = published(ids, attention_mask=torch.ones_like(ids)).logits
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_an_old_bert_names_neither_type_nor_epsilon(tmp_path, ids):
    """google/bert_uncased_L-2_H-128_A-2 has such a config.json, and gamma and beta in its norms."""
    folder = write_checkpoint(tmp_path / "origin", "BERT with its head", layer_norm_eps=1e-12)
    expected = encode_there(folder, ids)
    config = json.loads((folder / "config.json").read_text())
    for name in ("model_type", "layer_norm_eps", "architectures", "position_embedding_type"):
        config.pop(name, None)
    (folder / "config.json").write_text(json.dumps(config))
    weights = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        weights[old.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    save_file(weights, folder / "model.safetensors")
    states = encode_here(load_here(folder, folder)[0], ids)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=0)
