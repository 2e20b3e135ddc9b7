"""Computes attention within the documents of packed sequences, in one of two ways.

DenseAttention runs on every device: a matrix of scores per sequence and a mask; the attention
probabilities are dropped out as published. DocumentAttention (CUDA, bf16) is the fused kernel for
sequences of different lengths, which computes nothing across documents. That kernel has no dropout
inside, so hidden states are dropped there, and probabilities are not.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.device import Device
from model.pretraining.network.dropout import Dropout

FAR_BELOW = -10_000.0  # added to the scores of what may not be seen: e^-10,000 is 0 in every type
BOUNDARIES = "boundaries"


@dataclass(frozen=True, eq=False)
class DenseAttention:
    mask: Tensor  # [sequences, 1, length, length], added to the scores

    def __call__(self, qkv: Tensor, dropout: Dropout) -> Tensor:
        """Map [sequences, length, 3, heads, width] to [sequences, length, heads · width]."""
        sequences, length, _, heads, width = qkv.shape
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * (1 / math.sqrt(width))) @ key.transpose(2, 3) + self.mask
        mixed = dropout(torch.softmax(scores, dim=-1)) @ value
        return mixed.transpose(1, 2).reshape(sequences, length, heads * width)


@dataclass(frozen=True, eq=False)  # torch.compile asks for a hash before there are boundaries
class DocumentAttention:
    boundaries: Tensor  # [slots + 1] int32, offsets among all positions; the rest repeats the end
    longest: int

    def __call__(self, qkv: Tensor, dropout: Dropout) -> Tensor:
        """Map [sequences, length, 3, heads, width] to [sequences, length, heads · width]."""
        from torch.nn.attention.varlen import varlen_attn

        sequences, length, _, heads, width = qkv.shape
        query, key, value = qkv.flatten(0, 1).unbind(1)
        mixed = varlen_attn(
            query, key, value, self.boundaries, self.boundaries, self.longest, self.longest
        )
        assert isinstance(mixed, Tensor)
        return mixed.view(sequences, length, heads * width)


Attention = DenseAttention | DocumentAttention


def build_attention(batch: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> Attention:
    """Return the attention by which the tokens of a batch see those of their own document."""
    documents = batch["documents"]
    if BOUNDARIES in batch:
        return DocumentAttention(batch[BOUNDARIES], documents.shape[1])
    apart = documents[:, None, :, None] != documents[:, None, None, :]
    return DenseAttention(apart.to(dtype) * FAR_BELOW)


def find_boundaries(documents: NDArray[Any]) -> NDArray[np.int32]:
    """Return the offsets of the documents, [slots + 1], from their numbers [sequences, length].

    Padding counts as a document. The slots are the power of two that holds this batch's documents:
    fewer than half of them are empty, and a compiled step meets few shapes.
    """
    flat = documents + np.arange(len(documents))[:, None] * (documents.shape[1] + 1)
    starts = np.flatnonzero(np.diff(flat.ravel(), prepend=-1))
    slots = 1 << (len(starts) - 1).bit_length()
    offsets = np.full(slots + 1, documents.size, dtype=np.int32)
    offsets[: len(starts)] = starts
    return offsets


def put_batch(device: Device, arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return a process's share of a batch on the device."""
    return device.put(_add_boundaries(device, arrays))


def put_whole_batch(device: Device, arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return a batch on the device that no other process has a share of."""
    return device.put_whole(_add_boundaries(device, arrays))


def _add_boundaries(device: Device, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays with the offsets of their documents if the kernel takes them."""
    if not device.has_document_attention:
        return arrays
    return arrays | {BOUNDARIES: find_boundaries(arrays["documents"])}
