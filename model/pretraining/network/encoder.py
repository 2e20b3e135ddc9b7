"""The transformer of both networks: BERT's, post-norm, as transformers' ElectraModel. Weights,
states and LayerNorm are fp32, products of the device's type. Attention stays within documents: by a
mask, or on CUDA in bf16 by FlexAttention, without dropout.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from amazon_electra.model.architecture import Architecture

FAR_BELOW = -10_000.0  # added to the scores of what may not be seen: e^-10,000 is 0 in every type
BLOCK = 128  # tokens


@dataclass(frozen=True, eq=False)
class DenseAttention:
    mask: Tensor  # [sequences, 1, length, length], added to the scores

    def __call__(self, qkv: Tensor, dropout: nn.Dropout) -> Tensor:
        """Map [sequences, length, 3, heads, width] to [sequences, length, heads · width]."""
        sequences, length, _, heads, width = qkv.shape
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * (1 / math.sqrt(width))) @ key.transpose(2, 3) + self.mask
        mixed = dropout(torch.softmax(scores, dim=-1)) @ value
        return mixed.transpose(1, 2).reshape(sequences, length, heads * width)


@dataclass(frozen=True, eq=False)
class FusedAttention:
    documents: Tensor  # [sequences, length]
    counts: Tensor  # int32 [sequences, 1, blocks]: how many blocks each block of tokens sees
    places: Tensor  # int32 [sequences, 1, blocks, blocks]: which, those that it sees first

    def __call__(self, qkv: Tensor, dropout: nn.Dropout) -> Tensor:
        """Map [sequences, length, 3, heads, width] to [sequences, length, heads · width]."""
        documents = self.documents
        if not torch.compiler.is_compiling():
            return DenseAttention(build_mask(documents, qkv.dtype))(qkv, dropout)

        def share_document(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return documents[row, query] == documents[row, key]

        length = documents.shape[1]
        blocks = BlockMask.from_kv_blocks(
            self.counts,
            self.places,
            BLOCK_SIZE=BLOCK,
            mask_mod=share_document,
            seq_lengths=(length, length),
        )
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = flex_attention(query, key, value, block_mask=blocks)
        assert isinstance(mixed, Tensor)
        return mixed.transpose(1, 2).flatten(2)


Attention = DenseAttention | FusedAttention


def build_attention(batch: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> Attention:
    """Return the attention by which the tokens of a batch see those of their own document."""
    documents = batch["documents"]
    if documents.is_cuda and dtype == torch.bfloat16:
        return FusedAttention(documents, *find_blocks(documents))
    return DenseAttention(build_mask(documents, dtype))


def build_mask(documents: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to scores, [sequences, 1, length, length]."""
    apart = documents[:, None, :, None] != documents[:, None, None, :]
    return apart.to(dtype) * FAR_BELOW


def find_blocks(documents: Tensor) -> tuple[Tensor, Tensor]:
    """Return `counts` and `places` of FusedAttention; numbers count up, 0 is padding at the end."""
    sequences, length = documents.shape
    last = length + 1
    numbers = torch.where(documents > 0, documents, last)
    numbers = functional.pad(numbers, (0, -length % BLOCK), value=last)
    lowest, highest = numbers.view(sequences, -1, BLOCK).aminmax(dim=2)
    sees = (lowest[:, :, None] <= highest[:, None]) & (highest[:, :, None] >= lowest[:, None])
    places = sees.int().argsort(dim=2, descending=True, stable=True)
    return sees.sum(2, dtype=torch.int32)[:, None], places.int()[:, None]


INITIALIZER_RANGE = 0.02  # google: truncated normal; of the embeddings always


class Linear(nn.Linear):
    """Maps […, width in] to […, width out]."""

    products = torch.float32  # the type the product is made and given in: multiply_in

    def forward(self, states: Tensor) -> Tensor:
        kind = self.products
        return functional.linear(states.to(kind), self.weight.to(kind), self.bias.to(kind))


class Projection(Linear):
    """From the width of the embeddings to that of the states."""


class Score(nn.Linear):
    """Maps […, width] to one logit each, in fp32."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)


GLOROT = (Projection, Score)  # google: tf.layers.dense's default


def set_product_type(module: nn.Module, kind: torch.dtype) -> None:
    for part in module.modules():
        if isinstance(part, Linear):
            part.products = kind


class LayerNorm(nn.LayerNorm):
    """Norms […, width] in fp32, whatever the type of the states."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__(width, eps=epsilon)

    def forward(self, states: Tensor) -> Tensor:
        return super().forward(states.float())


class _FewRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rows = len(table)
        return functional.embedding(ids, table)

    @staticmethod
    def backward(ctx: Any, *changes: Tensor) -> tuple[None, Tensor]:
        (ids,), [change] = ctx.saved_tensors, changes
        is_row = ids.flatten()[:, None] == torch.arange(ctx.rows, device=ids.device)
        return None, is_row.to(change.dtype).t() @ change.flatten(0, -2)


def look_up_few(ids: Tensor, table: Tensor) -> Tensor:
    """Return rows of a small table."""
    # the gradient is a product, with the same bits each time; torch's sum differs between runs
    rows: Tensor = _FewRows.apply(ids, table)
    return rows


class Embeddings(nn.Module):
    """Word, position and type vectors of width `embedding`; one instance serves both networks."""

    def __init__(self, vocabulary_size: int, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        width, types = architecture.embedding, architecture.type_vocabulary_size
        self.word = nn.Parameter(torch.empty(vocabulary_size, width))
        self.position = nn.Parameter(torch.empty(architecture.max_positions, width))
        self.token_type = nn.Parameter(torch.empty(types, width))
        self.norm = LayerNorm(width, architecture.layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, positions: Tensor, types: Tensor | None = None) -> Tensor:
        """Map [sequences, length] each to [sequences, length, embedding]; types default to 0."""
        look_up = look_up_few if self.word.is_cuda else functional.embedding
        words = functional.embedding(input_ids, self.word)
        vectors = words + look_up(positions, self.position[: positions.shape[1]])
        of_type = self.token_type[0] if types is None else look_up(types, self.token_type)
        normed: Tensor = self.dropout(self.norm(vectors + of_type))
        return normed


class Layer(nn.Module):
    """Attention, then feed-forward; each adds to the states, which are then normed (post-norm)."""

    def __init__(self, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        hidden = architecture.hidden
        self.heads = architecture.heads
        self.qkv = Linear(hidden, 3 * hidden)
        self.attention_output = Linear(hidden, hidden)
        self.attention_norm = LayerNorm(hidden, architecture.layer_norm_eps)
        self.up = Linear(hidden, architecture.intermediate)
        self.down = Linear(architecture.intermediate, hidden)
        self.output_norm = LayerNorm(hidden, architecture.layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, attention: Attention) -> Tensor:
        """Map [sequences, length, hidden] to the same shape."""
        sequences, length, hidden = states.shape
        qkv = self.qkv(states).view(sequences, length, 3, self.heads, hidden // self.heads)
        attended = self.attention_output(attention(qkv, self.dropout))
        states = self.attention_norm(states + self.dropout(attended))
        lifted = functional.gelu(self.up(states))
        normed: Tensor = self.output_norm(states + self.dropout(self.down(lifted)))
        return normed


class Encoder(nn.Module):
    """Maps embedded tokens to hidden states, with a projection where the widths differ (google)."""

    def __init__(self, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        narrow, wide = architecture.embedding, architecture.hidden
        self.project = Projection(narrow, wide) if narrow != wide else nn.Identity()
        layers = (Layer(architecture, dropout) for _ in range(architecture.layers))
        self.layers = nn.ModuleList(layers)

    def forward(self, embedded: Tensor, attention: Attention) -> Tensor:
        """Map [sequences, length, embedding] to [sequences, length, hidden]."""
        states = self.project(embedded)
        for layer in self.layers:
            states = layer(states, attention)
        return states


def initialize_weights(module: nn.Module, seed: int, deviation: float = INITIALIZER_RANGE) -> None:
    """Draw the start weights as google does: truncated normal within two deviations of 0.02, GLOROT
    layers uniform, biases 0, LayerNorm 1 and 0; `deviation` is of the layers' matrices. On the CPU,
    in the parameters' order, so that a seed gives the same on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    glorot = {id(m.weight) for m in module.modules() if isinstance(m, GLOROT)}
    norms = {id(p) for m in module.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            if name.endswith("bias"):
                parameter.zero_()
            elif id(parameter) in norms:
                parameter.fill_(1.0)
            elif id(parameter) in glorot:
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                width = INITIALIZER_RANGE if "embeddings" in name else deviation
                ends = -2 * width, 2 * width
                nn.init.trunc_normal_(parameter, 0.0, width, *ends, generator=generator)
