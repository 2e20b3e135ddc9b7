"""Compute no more of a classifier's last layer than its head reads: the first token's state.

Of the other tokens the last layer needs keys and values alone, which saves most of its work. The
modules are those of transformers, in whatever form the scorer has (forms.py).
"""

from typing import Any

from torch import Tensor, nn

from model.finetuning.network.cheap_dropout import compute_attention
from model.finetuning.network.encoders import Head, is_judged_by_first
from model.finetuning.network.fused_layers import LAYERS


def compute_first_token_alone(classifier: nn.Module, head: Head) -> bool:
    """Let the last layer give the state of [CLS] alone, if the head reads no other; say whether."""
    layers: list[Any] = [m for m in classifier.modules() if type(m).__name__ in LAYERS]
    if not layers or layers[-1].is_decoder or not is_judged_by_first(head):
        return False
    layers[-1].forward = FirstTokenForward(layers[-1])
    return True


class FirstTokenForward:
    """Stands in the place of a layer's `forward`."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, states: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """Map [texts, tokens, hidden] to [texts, 1, hidden]; a mask is added to the scores."""
        layer, attention = self.layer, self.layer.attention
        first: Tensor = states[:, :1]
        own = attention.self
        mixed, _weights = compute_attention(
            own,
            split_heads(own.query(first), own.num_attention_heads),
            split_heads(own.key(states), own.num_attention_heads),
            split_heads(own.value(states), own.num_attention_heads),
            None if mask is None else mask[:, :, :1],
        )
        between = attention.output(mixed.flatten(2), first)
        mapped: Tensor = layer.output(layer.intermediate(between), between)
        return mapped


def split_heads(states: Tensor, heads: int) -> Tensor:
    """Map [texts, tokens, hidden] to [texts, heads, tokens, width]."""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)
