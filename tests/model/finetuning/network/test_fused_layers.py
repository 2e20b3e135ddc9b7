"""Layers written out compute what transformers computes, forward and backward."""

import copy

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    RobertaConfig,
)

from model.finetuning.network import cheap_dropout, fused_layers

SMALL = {
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.3,
}
CONFIGS = {
    "bert": BertConfig(**SMALL),
    "electra": ElectraConfig(**SMALL, embedding_size=8),
    "roberta": RobertaConfig(**SMALL),
}


def networks(name, first_token_only=False):
    """Return transformers' network and the same with fused layers."""
    torch.manual_seed(0)
    plain = AutoModelForSequenceClassification.from_config(CONFIGS[name]).eval()
    fused = copy.deepcopy(plain)
    assert fused_layers.use_fused_layers(fused, first_token_only)
    return plain, fused


def batch(padded=True):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 50, (6, 20), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, 13:] = 0
        mask[3, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1, 0, 1, 1, 0])}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("first_token_only", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_logits_and_gradients_are_those_of_transformers(
    name, first_token_only, padded, monkeypatch
):
    monkeypatch.setattr(fused_layers, "SCORES_AT_ONCE", 2000)  # two texts at a time
    plain, fused = networks(name, first_token_only)
    said = [model(**batch(padded)) for model in (plain, fused)]
    assert torch.allclose(said[0].logits, said[1].logits, atol=1e-5)
    for output in said:
        output.loss.backward()
    for (parameter, wanted), found in zip(
        plain.named_parameters(), fused.parameters(), strict=True
    ):
        if wanted.grad is not None and not parameter.endswith("key.bias"):  # which changes nothing
            assert torch.allclose(wanted.grad, found.grad, rtol=1e-3, atol=1e-5), parameter


@pytest.mark.parametrize("is_fast", [True, False])
def test_in_bf16_they_differ_by_what_bf16_rounds(is_fast, monkeypatch):
    monkeypatch.setattr(fused_layers, "has_fast_bf16_products", lambda: is_fast)
    plain, fused = networks("bert", first_token_only=True)
    with torch.no_grad():
        exact = plain(**batch()).logits
        with torch.autocast("cpu", torch.bfloat16):
            said = [model(**batch()).logits.float() for model in (plain, fused)]
    apart = [float((logits - exact).norm() / exact.norm()) for logits in said]
    assert 0 < apart[1] < max(2 * apart[0], 0.02)


def test_a_cpu_slow_in_bf16_multiplies_the_same_rounded_numbers(monkeypatch):
    """Rows and weights that bf16 holds exactly: only the last rounding is left to differ."""
    generator = torch.Generator().manual_seed(0)
    rows, weight, by_mapped = (
        torch.randn(size, generator=generator) for size in ((40, 16), (8, 16), (40, 8))
    )
    plan = fused_layers.Plan(2, 1e-12, torch.bfloat16, None, 0, None, None)
    found = []
    for is_fast in (True, False):
        monkeypatch.setattr(fused_layers, "has_fast_bf16_products", lambda answer=is_fast: answer)
        product = fused_layers.Product(rows, weight, torch.zeros(8), plan)
        gradients = product.differentiate(by_mapped.bfloat16())
        found.append([product.mapped, *gradients])
        assert [t.dtype for t in found[-1]] == 2 * [torch.bfloat16] + 2 * [torch.float32]
    for fast, slow in zip(*found, strict=True):
        torch.testing.assert_close(slow.float(), fast.float(), rtol=2**-7, atol=2**-7)
    rounded = rows.bfloat16().double() @ weight.bfloat16().double().t()
    torch.testing.assert_close(found[1][0].double(), rounded, rtol=2**-8, atol=1e-6)
    assert not torch.equal(found[1][0].double(), (rows.double() @ weight.double().t()))


@pytest.mark.parametrize("first_token_only", [False, True])
def test_the_gradient_goes_through_what_was_dropped(first_token_only):
    """It is the slope of the loss while seed and step hold the dropped elements still."""
    _, model = networks("bert", first_token_only)
    noise = cheap_dropout.DropoutNoise(model.train())

    def compute_loss():
        noise.begin_step(0, 3)
        return model(**batch()).loss

    compute_loss().backward()
    kernel = model.bert.encoder.layer[0].attention.self.value.weight
    found = float(kernel.grad[2, 3])
    losses = []
    for change in (1e-2, -2e-2):
        with torch.no_grad():
            kernel[2, 3] += change
            losses.append(compute_loss().item())
    assert found == pytest.approx((losses[0] - losses[1]) / 2e-2, rel=0.05, abs=1e-4)
    noise.begin_step(0, 4)
    assert model(**batch()).loss.item() != losses[1]


def test_every_state_is_dropped_at_its_rate_and_attention_too(monkeypatch):
    seen = []
    take = cheap_dropout.Noise.take_factors
    monkeypatch.setattr(
        cheap_dropout.Noise,
        "take_factors",
        lambda noise, states: seen.append((noise.rate, tuple(states.shape))) or take(noise, states),
    )
    config = copy.deepcopy(CONFIGS["bert"])
    config.attention_probs_dropout_prob, config.hidden_dropout_prob = 0.2, 0.3
    model = AutoModelForSequenceClassification.from_config(config).train()
    fused_layers.use_fused_layers(model)
    noise = cheap_dropout.DropoutNoise(model)
    noise.begin_step(0, 0)
    model(**batch())
    assert sorted(seen) == sorted(
        2 * [(0.2, (12, 20, 20)), (0.3, (120, 16)), (0.3, (120, 16))]
        + [(0.3, (6, 20, 16)), (0.3, (6, 16))]
    )


def test_a_copy_has_layers_of_its_own():
    _, model = networks("electra")
    clone = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in clone.electra.encoder.parameters():
            parameter.zero_()
    before = model(**batch()).logits
    assert not torch.allclose(before, clone(**batch()).logits)


def test_networks_with_other_layers_stay_as_they_are():
    small = {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    model = AutoModelForSequenceClassification.from_config(DistilBertConfig(**small))
    assert not fused_layers.use_fused_layers(model)
    tanh = BertConfig(**SMALL | {"hidden_act": "gelu_new"})
    assert not fused_layers.use_fused_layers(AutoModelForSequenceClassification.from_config(tanh))
