"""Defines the transformer of both networks: BERT's, post-norm, as in transformers' ElectraModel.

Own modules, not those of transformers: one matrix product for query, key and value, what attention
may see made once per batch, cheap dropout, and nothing whose shape depends on the data. Weights,
states and LayerNorm are fp32; only the products are made in the narrower type of the device, as
autocast does: tokens of a little-trained network differ by less than bf16 can tell. `small` on real
reviews after 600 steps of 16: the discriminator's loss on dev was 0.4031 with bf16 states, what a
constant scores, and 0.3964 with fp32 ones. model/encoders/names.py holds the
exact mapping of the weights.

Attention stays within the documents of packed sequences, in one of two ways. DenseAttention runs
on every device: a matrix of scores per sequence and a mask; the attention probabilities are dropped
out as published. DocumentAttention (CUDA, bf16) is the fused kernel for sequences of different
lengths, which computes nothing across documents. That kernel has no dropout inside, so hidden
states are dropped there, and probabilities are not.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from model.config import Architecture
from model.device import Device
from model.pretraining.network.dropout import Dropout, Noise

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


INITIALIZER_RANGE = 0.02  # google: truncated normal; of the embeddings always
GLOROT = ("project.weight", "discriminator_head.out.weight")  # google: tf.layers.dense's default


class Linear(nn.Linear):
    """Maps […, width in] to […, width out]."""

    products = torch.float32  # the type the product is made and given in: multiply_in

    def forward(self, states: Tensor) -> Tensor:
        kind = self.products
        return functional.linear(states.to(kind), self.weight.to(kind), self.bias.to(kind))


def set_product_type(module: nn.Module, kind: torch.dtype) -> None:
    """Let all Linear layers of the module multiply in this type."""
    for part in module.modules():
        if isinstance(part, Linear):
            part.products = kind


class LayerNorm(nn.LayerNorm):
    """Norms […, width] in fp32, whatever the type of the states."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__(width, eps=epsilon)

    def forward(self, states: Tensor) -> Tensor:
        return super().forward(states.float())


class Embeddings(nn.Module):
    """Word, position and type vectors of width `embedding`; one instance serves both networks."""

    def __init__(self, vocabulary_size: int, architecture: Architecture, noise: Noise) -> None:
        super().__init__()
        self.word = nn.Parameter(torch.empty(vocabulary_size, architecture.embedding))
        self.position = nn.Parameter(
            torch.empty(architecture.max_positions, architecture.embedding)
        )
        self.token_type = nn.Parameter(
            torch.empty(architecture.type_vocabulary_size, architecture.embedding)
        )
        self.norm = LayerNorm(architecture.embedding, architecture.layer_norm_eps)
        self.dropout = Dropout(noise)

    def forward(self, input_ids: Tensor, positions: Tensor, types: Tensor | None = None) -> Tensor:
        """Map [sequences, length] each to [sequences, length, embedding]; types default to 0."""
        words = functional.embedding(input_ids, self.word)
        vectors = words + functional.embedding(positions, self.position)
        vectors = vectors + (
            self.token_type[0] if types is None else functional.embedding(types, self.token_type)
        )
        normed: Tensor = self.dropout(self.norm(vectors))
        return normed


class Layer(nn.Module):
    """Attention, then feed-forward; each adds to the states, which are then normed (post-norm)."""

    def __init__(self, architecture: Architecture, noise: Noise) -> None:
        super().__init__()
        hidden = architecture.hidden
        self.heads = architecture.heads
        self.qkv = Linear(hidden, 3 * hidden)
        self.attention_output = Linear(hidden, hidden)
        self.attention_norm = LayerNorm(hidden, architecture.layer_norm_eps)
        self.up = Linear(hidden, architecture.intermediate)
        self.down = Linear(architecture.intermediate, hidden)
        self.output_norm = LayerNorm(hidden, architecture.layer_norm_eps)
        self.dropout = Dropout(noise)

    def forward(self, states: Tensor, attention: Attention) -> Tensor:
        """Map [sequences, length, hidden] to the same shape."""
        sequences, length, hidden = states.shape
        qkv = self.qkv(states).view(sequences, length, 3, self.heads, hidden // self.heads)
        attended = self.attention_output(attention(qkv, self.dropout))
        states = self.attention_norm(self.dropout.add_residual(states, attended))
        lifted = functional.gelu(self.up(states))
        normed: Tensor = self.output_norm(self.dropout.add_residual(states, self.down(lifted)))
        return normed


class Encoder(nn.Module):
    """Maps embedded tokens to hidden states, with a projection where the widths differ (google)."""

    def __init__(self, architecture: Architecture, noise: Noise) -> None:
        super().__init__()
        self.project = (
            Linear(architecture.embedding, architecture.hidden)
            if architecture.embedding != architecture.hidden
            else nn.Identity()
        )
        self.layers = nn.ModuleList(Layer(architecture, noise) for _ in range(architecture.layers))

    def forward(self, embedded: Tensor, attention: Attention) -> Tensor:
        """Map [sequences, length, embedding] to [sequences, length, hidden]."""
        states = self.project(embedded)
        for layer in self.layers:
            states = layer(states, attention)
        return states


def initialize_weights(module: nn.Module, seed: int, deviation: float = INITIALIZER_RANGE) -> None:
    """Draw the start weights as google does.

    They are truncated normal within two deviations of 0.02, in GLOROT layers uniform by Glorot &
    Bengio 2010, biases 0, LayerNorm 1 and 0. `deviation` is that of the layers'
    matrices, not of the embeddings. They are drawn on the CPU, parameter by parameter in their
    order, so that the same seed gives the same weights on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = {id(p) for m in module.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            if name.endswith("bias"):
                parameter.zero_()
            elif id(parameter) in norms:
                parameter.fill_(1.0)
            elif name.endswith(GLOROT):
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                width = INITIALIZER_RANGE if "embeddings" in name else deviation
                nn.init.trunc_normal_(
                    parameter, 0.0, width, -2 * width, 2 * width, generator=generator
                )
