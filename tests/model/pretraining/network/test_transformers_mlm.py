"""Documents of packed sequences are encoded by transformers' module as each of them alone."""

import numpy as np
import pytest
import torch

from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.encoders.weights import load_masked_lm
from amazon_electra.model.pretraining.network.transformers_mlm import TransformersMlm, find_layout
from tests.model.encoders.checkpoints import FOREIGN, write_kind

LENGTHS = ((40, 20, 4), (64,), (3, 30, 10))
"""Of the documents of each sequence of 64 tokens; the rest is padding."""


def make_batch(size: int) -> dict[str, torch.Tensor]:
    documents, positions = np.zeros((2, len(LENGTHS), 64), np.int64)
    for row, lengths in enumerate(LENGTHS):
        start = 0
        for number, length in enumerate(lengths, start=1):
            documents[row, start : start + length] = number
            positions[row, start : start + length] = np.arange(length)
            start += length
    ids = np.random.default_rng(0).integers(5, size, documents.shape) * (documents > 0)
    arrays = {"input_ids": ids, "documents": documents, "positions": positions}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def load(folder) -> TransformersMlm:
    network, _ = load_masked_lm(folder)
    config = PretrainingConfig(steps=1, batch=2, learning_rate=1.0, dropout=0.0, objective="mlm")
    return TransformersMlm(network, config, longest=64).eval()


@pytest.mark.parametrize("kind", FOREIGN)
def test_loss_is_that_of_the_whole_module(kind, tmp_path):
    model = load(write_kind(tmp_path, kind))
    assert model.layout.is_packed == (kind != "DeBERTa-v3")
    batch = make_batch(min(300, model.network.config.vocab_size))
    places = torch.tensor([[1, 50], [7, 60], [5, 0]])
    weights = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    batch |= {"masked_ids": batch["input_ids"], "masked_positions": places}
    batch |= {"masked_weights": weights, "masked_total": torch.tensor(5.0)}
    with torch.no_grad():
        step = model(batch)
        ends = [np.cumsum([0, *lengths]) for lengths in LENGTHS]
        losses = []
        for row, (chosen, used) in enumerate(zip(places, weights, strict=True)):
            for place in chosen[used > 0].tolist():
                number = int(np.searchsorted(ends[row], place, side="right"))
                start, end = ends[row][number - 1], ends[row][number]
                ids = batch["input_ids"][row : row + 1, start:end]
                logits = model.network(ids).logits[0, place - start]
                losses.append(-torch.log_softmax(logits, 0)[ids[0, place - start]])
    torch.testing.assert_close(step.loss, torch.stack(losses).mean(), atol=1e-5, rtol=1e-5)


def test_local_layers_see_no_farther_than_published(tmp_path):
    """A mask of documents alone would let ModernBERT's local layers see whole documents."""
    network, _ = load_masked_lm(write_kind(tmp_path, "ModernBERT"))
    assert find_layout(network.eval(), 64).window == network.config.sliding_window == 8
