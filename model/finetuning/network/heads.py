"""Pool by the mean over a text's tokens, which transformers has no head for.

For encoders trained for minutes the [CLS] vector has learnt nothing (replaced-token detection never
asks it anything), while the mean over the tokens already says which words are there.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput


class MeanPooledClassifier(nn.Module):
    """Encoder, mean over the tokens that are not padding, dropout, linear layer to the classes."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        config: Any = encoder.config
        dropout = getattr(config, "hidden_dropout_prob", getattr(config, "dropout", 0.1))
        size = config.hidden_size if hasattr(config, "hidden_size") else config.dim
        linear = nn.Linear(size, classes)
        nn.init.normal_(linear.weight, std=0.02)
        nn.init.zeros_(linear.bias)
        self.head = nn.Sequential(nn.Dropout(dropout), linear)

    @property
    def config(self) -> Any:
        return self.encoder.config

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **others: Any
    ) -> SequenceClassifierOutput:
        """Return logits [batch, classes]; input_ids and attention_mask are [batch, tokens]."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **others)
        hidden = output.last_hidden_state
        mask = attention_mask.to(hidden.dtype).unsqueeze(-1)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        return SequenceClassifierOutput(
            logits=self.head(mean), hidden_states=output.hidden_states, attentions=output.attentions
        )
