"""What makes a network faster on the way to its head changes no logit and no gradient."""

from copy import deepcopy

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    RobertaConfig,
)

from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning.heads import FirstTokenLayer
from amazon_electra.model.finetuning.network import Head, prepare_network

SHAPE = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE |= {"intermediate_size": 32, "max_position_embeddings": 300}
CONFIGS = {
    "bert": BertConfig(**SHAPE),
    "electra": ElectraConfig(**SHAPE, embedding_size=8),
    "roberta": RobertaConfig(**SHAPE, pad_token_id=0),
    "distilbert": DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32),
}


def make_head(max_length=64, shape="classification"):
    return Head("polarity", shape, ("a", "b"), max_length, 8)


def make_pair(name, max_length=64, precision="fp32", **changes):
    """The same network as transformers makes it, and prepared."""
    config = deepcopy(CONFIGS[name])
    for field, value in changes.items():
        setattr(config, field, value)
    torch.manual_seed(0)
    plain = AutoModelForSequenceClassification.from_config(config).eval()
    prepared = deepcopy(plain)
    prepare_network(prepared, make_head(max_length), open_device("cpu", precision))
    return plain, prepared


def make_batch(padded):
    ids, mask = torch.randint(5, 50, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    if padded:
        mask[1, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1, 1])}


def has_first_token_layer(network):
    return any(isinstance(module, FirstTokenLayer) for module in network.modules())


@pytest.mark.parametrize(("max_length", "padded"), [(64, False), (64, True), (256, True)])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_gradients_stay(name, max_length, padded):
    plain, prepared = make_pair(name, max_length)
    assert has_first_token_layer(prepared) == (name != "distilbert")
    batch = make_batch(padded)
    found, expected = prepared(**batch), plain(**batch)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-5, rtol=1e-4)
    found.loss.backward()
    expected.loss.backward()
    gradients = dict(plain.named_parameters())
    for parameter_name, parameter in prepared.named_parameters():  # the names are the same
        theirs = gradients[parameter_name].grad
        own = parameter.grad
        if theirs is not None and own is not None:
            torch.testing.assert_close(own, theirs, atol=1e-6, rtol=1e-3, msg=parameter_name)


def test_attention_of_the_last_layer_is_dropped_out_in_training_alone():
    rates = {"attention_probs_dropout_prob": 0.5, "hidden_dropout_prob": 0.0}
    _, prepared = make_pair("bert", num_hidden_layers=1, classifier_dropout=0.0, **rates)
    batch = make_batch(padded=False)
    assert torch.equal(prepared(**batch).logits, prepared(**batch).logits)
    prepared.train()
    assert not torch.equal(prepared(**batch).logits, prepared(**batch).logits)


@pytest.mark.parametrize(
    ("shape", "needs_states", "is_alone"),
    [("regression", False, True), ("classification", True, False), ("tokens", False, False)],
)
def test_a_head_that_reads_other_tokens_gets_them(shape, needs_states, is_alone):
    network = AutoModelForSequenceClassification.from_config(CONFIGS["bert"])
    head = make_head(shape=shape)
    prepare_network(network, head, open_device("cpu", "fp32"), needs_states)
    assert has_first_token_layer(network) == is_alone
    states = network.eval()(**make_batch(False), output_hidden_states=True).hidden_states
    assert states[-1].shape[1] == (1 if is_alone else 9)
