"""The last layer for heads that read one token."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

LAYERS = ("BertLayer", "ElectraLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer")
"""Classes of transformers that compute the same layer, of parts with the same names."""


class FirstTokenLayer(nn.Module):
    """A transformers layer that gives the state of [CLS] alone, [batch, 1, hidden].

    Of the other tokens a last layer needs keys and values only: a step of three layers is 1.4 times
    as fast (docs/performance.md). The parameters keep their names.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.attention, self.intermediate = layer.attention, layer.intermediate
        self.output = layer.output
        self.train(layer.training)

    def forward(self, states: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """Map states [batch, tokens, hidden]; the mask [batch, 1, tokens, tokens], where there is
        one, is added to the scores, or true where there is a token.
        """
        own: Any = self.attention.self
        query, key, value = (
            linear(part).unflatten(-1, (own.num_attention_heads, -1)).transpose(1, 2)
            for linear, part in ((own.query, states[:, :1]), (own.key, states), (own.value, states))
        )
        dropout = own.dropout.p if self.training else 0.0
        mask = None if mask is None else mask[:, :, :1]
        mixed = scaled_dot_product_attention(query, key, value, mask, dropout)
        between = self.attention.output(mixed.transpose(1, 2).flatten(2), states[:, :1])
        result: Tensor = self.output(self.intermediate(between), between)
        return result


def replace_last_layer(classifier: nn.Module) -> bool:
    """Let the last layer give [CLS] alone, if the architecture is one of LAYERS; say whether."""
    for module in classifier.modules():
        if isinstance(module, nn.ModuleList) and type(module[-1]).__name__ in LAYERS:
            if module[-1].is_decoder:
                return False
            module[-1] = FirstTokenLayer(module[-1])
            return True
    return False
