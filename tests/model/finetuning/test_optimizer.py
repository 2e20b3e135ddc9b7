"""Learning rates by layer and by step, and what decays."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, ElectraConfig

from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.finetuning.training import (
    build_optimizer,
    get_learning_rate,
    set_learning_rate,
)


def test_rates_fall_from_the_head_down():
    """The task head is at depth layers + 2 there, the top layer at depth layers: two decays lie
    between them (google-research/electra, model/optimization.py).
    """
    shape = {"vocab_size": 50, "embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 3}
    config = ElectraConfig(**shape, num_attention_heads=2, intermediate_size=16)
    model = AutoModelForSequenceClassification.from_config(config)
    learning = torch.nn.ModuleList([model])
    made = build_optimizer(
        learning, FinetuningSettings(layer_decay=0.5, weight_decay=0.1), 1.0, fused=False
    )
    rates = {
        id(p): (group["lr"], group["weight_decay"])
        for group in made.param_groups
        for p in group["params"]
    }
    named = dict(model.named_parameters())
    assert len(rates) == len(named)
    assert rates[id(named["classifier.dense.weight"])] == (1.0, 0.1)
    assert rates[id(named["electra.encoder.layer.2.intermediate.dense.weight"])] == (0.25, 0.1)
    assert rates[id(named["electra.encoder.layer.0.intermediate.dense.bias"])] == (0.0625, 0.0)
    assert rates[id(named["electra.embeddings.word_embeddings.weight"])] == (0.03125, 0.1)
    assert rates[id(named["electra.embeddings.LayerNorm.weight"])] == (0.03125, 0.0)
    assert rates[id(named["electra.embeddings_project.weight"])] == (0.03125, 0.1)


def test_the_rate_rises_and_falls_in_lines():
    """Without warm-up the first step has the whole rate, and so has the only one of a training."""
    group = {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 1.0, "peak": 1.0}
    sgd = torch.optim.SGD([group])

    def compute_rates(steps, warmup):
        for step in range(steps):
            set_learning_rate(sgd, step, steps, warmup)
            yield get_learning_rate(sgd)

    rates = list(compute_rates(20, 0.2))
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates[4:] == pytest.approx([i / 16 for i in range(16, 0, -1)])
    assert list(compute_rates(4, 0.0)) == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert list(compute_rates(1, 0.1)) == [1.0]
