"""The exported program gives what the classifier gives, for any batch and length."""

import pytest
import torch
from transformers import ElectraConfig, ElectraModel

from model.finetuning.heads import MeanPooledClassifier
from model.scorer import Probabilities, exported


@pytest.mark.parametrize(("batch", "length", "padding"), [(1, 2, 0), (5, 16, 7), (3, 9, 2)])
def test_the_program_equals_the_classifier(batch, length, padding):
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=120, hidden_size=16, embedding_size=16, num_hidden_layers=2, num_attention_heads=2, num_labels=3
    )
    module = Probabilities(MeanPooledClassifier(ElectraModel(config), 3)).eval()
    program = exported(module, 16).module()
    ids, mask = torch.randint(5, 100, (batch, length)), torch.ones(batch, length, dtype=torch.long)
    mask[0, length - padding :] = 0
    with torch.no_grad():
        torch.testing.assert_close(program(ids, mask), module(ids, mask), atol=1e-6, rtol=1e-5)
