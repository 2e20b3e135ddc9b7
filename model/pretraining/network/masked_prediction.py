"""Parts of every objective: the tied embeddings and the prediction of masked tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.pretraining.network.encoder import (
    Embeddings,
    LayerNorm,
    Linear,
    set_product_type,
)
from amazon_electra.model.pretraining.network.vocabulary_loss import VocabularyLoss, compute_rows

Batch = dict[str, Tensor]
Sums = dict[str, Tensor]
Scores = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Logits of a discriminator, and which tokens were replaced, of the real tokens of a batch."""


@dataclass(frozen=True)
class Step:
    """The result of one forward pass."""

    loss: Tensor  # this part's share of the batch's loss
    sums: Sums  # for the log: sums over this part, detached


class PretrainingModel(nn.Module):
    """The base of every network that is pre-trained here."""

    trunk_name = ""
    """Name of the network that is fine-tuned later. Where the objective has a generator, that one
    is called `generator`; the head of each is called after it, such as `generator_head`."""
    changed_config: Mapping[str, Any] = {}
    """Fields of config.json whose values differ from the module's."""

    def __init__(self, config: PretrainingConfig, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config
        self.dtype = dtype

    @property
    def module(self) -> Any:
        """Return the module of transformers that is trained; None where the network is ours."""
        return None

    def list_trunk_names(self) -> set[str]:
        """Return the names of the parameters of embeddings and trunk."""
        raise NotImplementedError

    def compute_means(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the means that are logged, `loss` among them, from the sums of some steps."""
        raise NotImplementedError

    def score_replacements(self, batch: Batch) -> Scores | None:
        """Return how the trunk scores what a generator samples; None where it scores none."""
        return None


class OwnModel(PretrainingModel):
    """The base of both objectives on our own encoder."""

    def __init__(
        self,
        vocabulary_size: int,
        architecture: Architecture,
        config: PretrainingConfig,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(config, dtype)
        self.embeddings = Embeddings(vocabulary_size, architecture, config.dropout)
        self.add_networks(vocabulary_size, architecture)
        set_product_type(self, dtype)

    def list_trunk_names(self) -> set[str]:
        beginnings = ("embeddings.", f"{self.trunk_name}.")
        return {name for name, _ in self.named_parameters() if name.startswith(beginnings)}

    def add_networks(self, vocabulary_size: int, architecture: Architecture) -> None:
        """Add the encoders and heads of the objective."""
        raise NotImplementedError


class MaskedLosses(NamedTuple):
    """The result of predicting masked tokens; [tokens] counts every slot of every sequence."""

    loss: Tensor  # weighted sum over the tokens
    sampled: Tensor  # [tokens] ids
    right: Tensor  # [tokens], 1.0 where the best guess is the original

    def sum_for_log(self, name: str, batch: Batch) -> Sums:
        """Return the sums from which `compute_masked_means` makes the logged means."""
        weights = batch["masked_weights"].flatten()
        return {
            "masked": weights.sum(),
            f"{name}_loss": self.loss.detach(),
            f"{name}_right": (self.right * weights).sum(),
        }


def compute_masked_means(name: str, sums: dict[str, float]) -> dict[str, float]:
    masked = max(sums["masked"], 1.0)
    return {
        f"{name}_loss": sums[f"{name}_loss"] / masked,
        f"{name}_accuracy": sums[f"{name}_right"] / masked,
    }


class TokenHead(nn.Module):
    """Maps hidden states to vectors that are compared with the word embeddings (google)."""

    def __init__(self, vocabulary_size: int, architecture: Architecture) -> None:
        super().__init__()
        self.dense = Linear(architecture.hidden, architecture.embedding)
        self.norm = LayerNorm(architecture.embedding, architecture.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.compute_rows = compute_rows

    def forward(self, states: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, embedding]."""
        vectors: Tensor = self.norm(functional.gelu(self.dense(states)))
        return vectors

    def compute_losses(self, vectors: Tensor, word: Tensor, batch: Batch) -> MaskedLosses:
        """Compare the vectors of the masked tokens with the words, and sample from the result."""
        kind = self.dense.products
        originals = batch["input_ids"].gather(1, batch["masked_positions"]).flatten()
        weights, keys = batch["masked_weights"].flatten(), batch["keys"].flatten()
        arguments = word.to(kind), self.bias.to(kind), originals, weights, keys, self.compute_rows
        return MaskedLosses(*VocabularyLoss.apply(vectors.to(kind), *arguments))


def gather_states(states: Tensor, places: Tensor) -> Tensor:
    """Return the states [sequences, length, width] at places [sequences, slots], flattened."""
    return states.gather(1, places[:, :, None].expand(-1, -1, states.shape[2])).flatten(0, 1)
