"""Where only some rows of the token embedding learn, the weights are those of the whole table."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig

from model.config import FinetuningSettings
from model.device import open_device
from model.finetuning.features.featurizer import Feature
from model.finetuning.network.heads import MeanPooledClassifier
from model.finetuning.training import loop, trained_rows

WORDS = 200
SETTINGS = FinetuningSettings(epochs=3, batch=8, layer_decay=0.9, clip=0.1)


def make_features():
    """Texts of 30 of the words, one of which comes in a single text."""
    generator = np.random.default_rng(0)
    rows = [generator.integers(5, 34, length) for length in generator.integers(4, 12, 40)]
    rows[7][2] = 150
    return [Feature(i, [row], [np.zeros_like(row)], i % 2) for i, row in enumerate(rows)]


def make_training(settings=SETTINGS):
    return loop.Training(
        features=make_features(),
        shape="classification",
        settings=settings,
        seed=0,
        device=open_device("cpu", "fp32"),
        score_dev=lambda model: {"accuracy": 0.5},
        report=lambda step, numbers: None,
    )


def make_network(pooling="cls"):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    if pooling == "mean":
        return MeanPooledClassifier(AutoModel.from_config(config), 2)
    return AutoModelForSequenceClassification.from_config(config)


def get_table(network):
    return getattr(network, "encoder", network).get_input_embeddings().weight.detach()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_weights_are_those_of_a_whole_table(pooling, monkeypatch):
    """After a step without a word its row still moves, by its moments."""
    trained = []
    for share in (0.5, 0.0):
        monkeypatch.setattr(trained_rows, "LARGEST_SHARE", share)
        trained.append(make_network(pooling))  # which seeds what attention drops
        loop.train(trained[-1], make_training(), 1e-2)
    (some, whole), start = trained, make_network(pooling)
    for (name, expected), found in zip(
        whole.state_dict().items(), some.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4, msg=name)
    moved = (get_table(some) != get_table(start)).any(1)
    words = {int(word) for feature in make_features() for word in feature.ids[0]}
    assert set(moved.nonzero().flatten().tolist()) == words


def test_a_prediction_reads_the_whole_table():
    network = make_network()
    plain = make_network()
    rows = trained_rows.train_used_rows(network, make_features(), 0)
    assert len(rows.parameter) == len({0, 150, *range(5, 34)})
    ids = torch.tensor([[199, 150, 6]])
    with torch.no_grad():
        rows.parameter.add_(1)
        expected = plain.eval()(ids).logits
        assert torch.equal(network.eval()(ids).logits, expected)
        rows.write()
        assert not torch.equal(network(ids).logits, expected)


@pytest.mark.parametrize("settings", [{"weight_decay": 0.01}, {}])
def test_the_whole_table_learns_where_it_decays_or_most_of_it_occurs(settings, monkeypatch):
    training = make_training(replace(SETTINGS, **settings))
    assert (loop._choose_rows(make_network(), training) is None) == bool(settings)
    monkeypatch.setattr(trained_rows, "LARGEST_SHARE", 0.15)
    assert loop._choose_rows(make_network(), training) is None


def test_an_embedding_that_something_else_reads_learns_whole():
    network = make_network()
    network.classifier = torch.nn.Linear(16, WORDS, bias=False)
    network.classifier.weight = network.get_input_embeddings().weight
    assert trained_rows.train_used_rows(network, make_features(), 0) is None
