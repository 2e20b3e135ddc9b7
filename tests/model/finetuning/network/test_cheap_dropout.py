"""The dropout and attention of fine-tuning on a CPU: the network is the same, only its random
numbers are cheaper.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
)

from model.finetuning.features.batches import collate_features, draw_training_batches
from model.finetuning.features.featurizer import Feature
from model.finetuning.network import cheap_dropout, encoders
from model.finetuning.network.heads import MeanPooledClassifier

SMALL = {"vocab_size": 50, "max_position_embeddings": 64}
CONFIGS = {
    "electra": ElectraConfig(
        **SMALL,
        embedding_size=16,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    ),
    "bert": BertConfig(
        **SMALL, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    ),
    "distilbert": DistilBertConfig(**SMALL, dim=16, n_layers=2, n_heads=2, hidden_dim=32),
}


def network(name="electra"):
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_config(CONFIGS[name])


def texts(n=24):
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 40, n)
    return [
        Feature(i, [generator.integers(5, 50, k).tolist()], [[0] * k], i % 2)
        for i, k in enumerate(lengths)
    ]


def logits(model, features, pad_to=None):
    inputs, targets = collate_features(features, "classification", pad_to)
    inputs = {k: v for k, v in inputs.items() if k != "token_type_ids"}
    return model(**inputs).logits, targets


@pytest.mark.parametrize("name", CONFIGS)
def test_attention_written_out_says_what_transformers_says(name):
    model = network(name).eval()
    features = texts()
    with torch.no_grad():
        before, _ = logits(model, features)
        encoders.use_unfused_attention(model)
        cheap_dropout.DropoutNoise(model)
        after, _ = logits(model, features)
    assert torch.allclose(before, after, atol=1e-6)
    assert not torch.equal(before[0], before[1])


def test_a_loss_in_a_batch_of_like_lengths_is_that_of_a_batch_padded_to_the_maximum():
    """The gradient too: what is saved is padding and nothing else."""
    model = network().eval()
    encoders.use_unfused_attention(model)
    features = texts(64)
    told = {}
    for name, pad_to in (("grouped", None), ("padded", 48)):
        model.zero_grad()
        each = torch.empty(len(features))
        for chosen in draw_training_batches(features, 8, np.random.default_rng(0), grouped=True):
            said, targets = logits(model, [features[i] for i in chosen], pad_to)
            losses = F.cross_entropy(said, targets, reduction="none")
            losses.sum().backward()
            each[torch.from_numpy(chosen)] = losses.detach()
        told[name] = (
            each,
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]),
        )
    for grouped, padded in zip(told["grouped"], told["padded"], strict=True):
        assert torch.allclose(grouped, padded, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_dropout_is_replaced_and_drops_at_its_rate(name):
    model = network(name)
    rates = sorted(m.p for m in model.modules() if type(m) is nn.Dropout)
    noise = cheap_dropout.DropoutNoise(model)
    noise.begin_step(0, 0)
    found = [m for m in model.modules() if isinstance(m, cheap_dropout.CheapDropout)]
    assert sorted(m.p for m in found) == rates
    dropped = found[0].train()(torch.ones(200, 500))
    assert float((dropped == 0).float().mean()) == pytest.approx(found[0].p, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.01)
    assert torch.equal(found[0].eval()(torch.ones(3)), torch.ones(3))


def test_what_is_dropped_follows_from_seed_and_step():
    """So that a training that was killed goes on as it would have."""
    model = MeanPooledClassifier(network().electra, 2).train()
    encoders.use_unfused_attention(model)
    noise = cheap_dropout.DropoutNoise(model)
    said = []
    for seed, step in ((0, 7), (0, 8), (1, 7), (0, 7)):
        noise.begin_step(seed, step)
        said.append(logits(model, texts())[0].detach())
    assert torch.equal(said[0], said[3])
    assert not torch.allclose(said[0], said[1])
    assert not torch.allclose(said[0], said[2])


def test_attention_itself_is_dropped():
    """With every other dropout off, only the attention weights can make two steps differ."""
    model = network().train()
    encoders.use_unfused_attention(model)
    noise = cheap_dropout.DropoutNoise(model)
    for module_name, module in model.named_modules():
        if isinstance(module, cheap_dropout.CheapDropout) and not module_name.endswith(
            "attention.self.dropout"
        ):
            module.p = 0.0
    said = []
    for step in (0, 1):
        noise.begin_step(0, step)
        said.append(logits(model, texts())[0].detach())
    assert not torch.allclose(said[0], said[1])
