"""The transformer both networks are made of: BERT's, post-norm, as in transformers' ElectraModel, weight for weight.

Own modules, not those of transformers: one matrix product for query, key and value, a ready attention mask made once
per batch, cheap dropout, and nothing whose shape depends on the data. export.py holds the exact mapping of the weights.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.presets import Architecture
from model.pretraining.dropout import Dropout

LAYER_NORM_EPSILON = 1e-12  # google, transformers
INITIAL_DEVIATION = 0.02  # google: truncated normal


class Embeddings(nn.Module):
    """Word, position and type vectors of width `embedding`; one instance serves both networks (tied)."""

    def __init__(self, vocabulary_size: int, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        self.word = nn.Parameter(torch.empty(vocabulary_size, architecture.embedding))
        self.position = nn.Parameter(torch.empty(architecture.max_positions, architecture.embedding))
        self.token_type = nn.Parameter(torch.empty(architecture.type_vocabulary_size, architecture.embedding))
        self.norm = nn.LayerNorm(architecture.embedding, eps=LAYER_NORM_EPSILON)
        self.dropout = Dropout(dropout)

    def forward(self, input_ids: Tensor, positions: Tensor, types: Tensor | None = None) -> Tensor:
        """[sequences, length] each → [sequences, length, embedding]; types default to 0."""
        vectors = functional.embedding(input_ids, self.word) + functional.embedding(positions, self.position)
        vectors = vectors + (self.token_type[0] if types is None else functional.embedding(types, self.token_type))
        normed: Tensor = self.dropout(self.norm(vectors))
        return normed


class Layer(nn.Module):
    def __init__(self, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        hidden = architecture.hidden
        self.heads = architecture.heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.attention_output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPSILON)
        self.up = nn.Linear(hidden, architecture.intermediate)
        self.down = nn.Linear(architecture.intermediate, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPSILON)
        self.dropout = Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """states [sequences, length, hidden]; mask [sequences, 1, length, length], True where attention may look."""
        attended = self.attention_output(self._attend(states, mask))
        states = self.attention_norm(states + self.dropout(attended))
        lifted = functional.gelu(self.up(states))
        normed: Tensor = self.output_norm(states + self.dropout(self.down(lifted)))
        return normed

    def _attend(self, states: Tensor, mask: Tensor) -> Tensor:
        sequences, length, hidden = states.shape
        split = self.qkv(states).view(sequences, length, 3, self.heads, hidden // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        rate = self.dropout.rate if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)
        return mixed.transpose(1, 2).reshape(sequences, length, hidden)


class Encoder(nn.Module):
    """Embedded tokens → hidden states; with a projection where the widths differ (google, transformers)."""

    def __init__(self, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        self.project = (
            nn.Linear(architecture.embedding, architecture.hidden)
            if architecture.embedding != architecture.hidden
            else nn.Identity()
        )
        self.layers = nn.ModuleList(Layer(architecture, dropout) for _ in range(architecture.layers))

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """[sequences, length, embedding] → [sequences, length, hidden]."""
        states = self.project(embedded)
        for layer in self.layers:
            states = layer(states, mask)
        return states


def attention_mask(documents: Tensor) -> Tensor:
    """Document numbers [sequences, length] → [sequences, 1, length, length], True within one document."""
    return (documents[:, None, :, None] == documents[:, None, None, :]).contiguous()


def initialize(module: nn.Module, seed: int) -> None:
    """google: truncated normal of deviation 0.02 within two deviations, biases 0, LayerNorm 1 and 0. Drawn on the CPU,
    parameter by parameter in their order, so that the same seed gives the same weights on every device."""
    generator = torch.Generator().manual_seed(seed)
    norms = {id(p) for m in module.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            if name.endswith("bias"):
                parameter.zero_()
            elif id(parameter) in norms:
                parameter.fill_(1.0)
            else:
                deviation = INITIAL_DEVIATION
                nn.init.trunc_normal_(parameter, 0.0, deviation, -2 * deviation, 2 * deviation, generator=generator)
