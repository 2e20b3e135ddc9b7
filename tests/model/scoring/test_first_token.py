"""A last layer that gives [CLS] alone changes no logit, and only where nothing else is read."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from model.finetuning.network.encoders import Head, use_unfused_attention
from model.scoring.first_token import compute_first_token_alone


def make_head(pooling: str) -> Head:
    return Head("polarity", "classification", ("a", "b"), pooling, 16, 8, "none")


@pytest.mark.parametrize("padded", [False, True])
def test_the_logits_stay(padded):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    network = BertForSequenceClassification(config).eval()
    ids, mask = torch.randint(5, 99, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    if padded:
        mask[1, 4:] = 0
    with torch.inference_mode():
        expected = network(input_ids=ids, attention_mask=mask).logits
        use_unfused_attention(network)
        assert compute_first_token_alone(network, make_head("cls"))
        found = network(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    assert torch.allclose(found.logits, expected, atol=1e-5)
    assert found.hidden_states[-1].shape == (3, 1, 32)


def test_a_head_that_reads_all_tokens_gets_all():
    assert not compute_first_token_alone(torch.nn.Linear(2, 2), make_head("cls"))
    network = BertForSequenceClassification(
        BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    )
    assert not compute_first_token_alone(network, make_head("mean"))
