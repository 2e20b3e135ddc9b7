"""The int8 product is near the fp32 one, and each text's own; whoever loads it packs it."""

import io

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from beam_jobs.scoring.classifier import pack_int8_weights
from model.scoring.forms import Int8Linear, convert_form
from model.scoring.program import ProbabilityModel, export_program


def make_classifier() -> ProbabilityModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=120,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        initializer_range=0.2,
    )
    return ProbabilityModel(BertForSequenceClassification(config)).eval()


@torch.no_grad()
def test_a_product_of_bytes_is_near_the_product_of_numbers():
    torch.manual_seed(0)
    layer, states = nn.Linear(384, 96), torch.randn(3, 5, 384)
    states[0, 0] *= 1000  # of one token: the others keep their own step
    found, expected = Int8Linear(layer)(states), layer(states)
    error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert found.shape == expected.shape
    assert 0 < error.max() < 0.02


@torch.no_grad()
def test_a_token_does_not_depend_on_the_others_of_its_batch():
    torch.manual_seed(0)
    layer, states = Int8Linear(nn.Linear(64, 64)), torch.randn(4, 7, 64)
    assert layer(states)[1].equal(layer(states[1:2])[0])


@torch.no_grad()
def test_no_input_is_a_division_by_zero():
    layer = Int8Linear(nn.Linear(64, 64))
    assert layer(torch.zeros(1, 2, 64))[0, 1].equal(layer.bias)


@torch.no_grad()
def test_the_loaded_program_computes_what_the_module_does():
    module = convert_form(make_classifier(), "int8")
    assert any(isinstance(part, Int8Linear) for part in module.modules())
    ids, mask = torch.randint(5, 100, (5, 9)), torch.ones(5, 9, dtype=torch.long)
    mask[2, 4:] = 0
    expected = module(ids, mask)  # packs: what is exported after it must not hold packed weights
    file = io.BytesIO()
    torch.export.save(export_program(module, 16), file)
    file.seek(0)
    program = pack_int8_weights(torch.export.load(file).module())
    assert program(ids, mask).equal(expected)


@torch.no_grad()
@pytest.mark.parametrize(("form", "most"), [("bf16", 0.05), ("int8", 0.1)])
def test_probabilities_are_near_those_in_fp32(form, most):
    ids, mask = torch.randint(5, 100, (16, 9)), torch.ones(16, 9, dtype=torch.long)
    expected = make_classifier()(ids, mask)
    found = convert_form(make_classifier(), form)(ids, mask)
    assert found.dtype == torch.float32
    assert 0 < (found - expected).abs().max() < most
