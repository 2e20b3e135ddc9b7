"""Attention within the documents of packed sequences, two ways to the same numbers.

Dense: a matrix of scores per sequence and a mask, for every device; the attention probabilities are dropped out as
published. By document (CUDA, bf16): the fused kernel for sequences of different lengths, told where each document
starts; nothing is computed across documents. That kernel has no dropout inside, so there the probabilities are not
dropped, hidden states are.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.pretraining.dropout import Dropout

FAR_BELOW = -10_000.0  # added to the scores of what may not be seen: e^-10,000 is 0 in every type
BOUNDARIES = "boundaries"
TOKENS_PER_BOUNDARY = 8  # positions for each boundary slot: shorter documents than this on average do not fit


@dataclass(frozen=True)
class Dense:
    mask: Tensor  # [sequences, 1, length, length], added to the scores

    def __call__(self, qkv: Tensor, dropout: Dropout) -> Tensor:
        """[sequences, length, 3, heads, width] → [sequences, length, heads · width]."""
        sequences, length, _, heads, width = qkv.shape
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * (1 / math.sqrt(width))) @ key.transpose(2, 3) + self.mask
        mixed = dropout(torch.softmax(scores, dim=-1)) @ value
        return mixed.transpose(1, 2).reshape(sequences, length, heads * width)


@dataclass(frozen=True)
class ByDocument:
    boundaries: Tensor  # [slots + 1] int32, offsets of the documents among all positions; the rest repeats the end
    longest: int

    def __call__(self, qkv: Tensor, dropout: Dropout) -> Tensor:
        """[sequences, length, 3, heads, width] → [sequences, length, heads · width]."""
        from torch.nn.attention.varlen import varlen_attn

        sequences, length, _, heads, width = qkv.shape
        query, key, value = qkv.flatten(0, 1).unbind(1)
        mixed = varlen_attn(query, key, value, self.boundaries, self.boundaries, self.longest, self.longest)
        assert isinstance(mixed, Tensor)
        return mixed.view(sequences, length, heads * width)


Attention = Dense | ByDocument


def within_documents(batch: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> Attention:
    """How the tokens of a batch see each other."""
    documents = batch["documents"]
    if BOUNDARIES in batch:
        return ByDocument(batch[BOUNDARIES], documents.shape[1])
    apart = documents[:, None, :, None] != documents[:, None, None, :]
    return Dense(apart.to(dtype) * FAR_BELOW)


def boundaries(documents: NDArray[Any]) -> NDArray[np.int32] | None:
    """Document numbers [sequences, length] → offsets of a fixed number of documents; padding is one of its own. None
    where there are more documents than slots: then the batch goes the dense way."""
    flat = documents + np.arange(len(documents))[:, None] * (documents.shape[1] + 1)
    starts = np.flatnonzero(np.diff(flat.ravel(), prepend=-1))
    slots = max(len(documents), documents.size // TOKENS_PER_BOUNDARY)
    if len(starts) > slots:
        return None
    offsets = np.full(slots + 1, documents.size, dtype=np.int32)
    offsets[: len(starts)] = starts
    return offsets
