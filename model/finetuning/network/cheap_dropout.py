"""Give transformers' networks on a CPU the dropout of pre-training, whose random numbers cost next
to nothing.

torch's own dropout draws a number for every element, a fifth of a small network's step. The dropout
modules are replaced by ones that take windows of a pool of keep factors
(model/pretraining/network/dropout.py), and attention by an unfused one that does so too. The seed
and the step decide what is dropped. By tests/bench/finetune_dropout.py a step gains, one after the
other, 1.08 and 1.07 times at 64 tokens and 1.07 and 1.15 times at 128 (fp32, AVX-512): together
more than a tenth, so both stay. On a CPU with bf16 attention alone gains 1.26 times at 128 tokens
and less than 1.1 at 64; where bf16 is emulated neither gains, but there `auto` takes fp32.
"""

from typing import Any

import torch
from torch import Tensor, nn

from model.pretraining.network.dropout import Noise

ATTENTION_NAME = "amazon_electra"
"""The attention's name in transformers' registry."""
POOL_SIZE = 1 << 22
"""Keep factors: twice the attention of 32 texts of 128 tokens with 4 heads."""


class CheapDropout(nn.Module):
    """Stands in the place of an nn.Dropout; transformers reads `p` where it drops attention."""

    def __init__(self, p: float, noise: Noise) -> None:
        super().__init__()
        self.p, self.noise = p, noise

    def forward(self, states: Tensor) -> Tensor:
        return states * self.noise.take_factors(states) if self.training and self.p else states


class DropoutNoise:
    """The random numbers of one network's dropout: a pool for each rate in it."""

    def __init__(self, model: nn.Module) -> None:
        self._pools: dict[float, Noise] = {}
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if type(child) is nn.Dropout:
                    setattr(
                        module,
                        name,
                        CheapDropout(child.p, self._get_pool(child.p)).train(child.training),
                    )

    def begin_step(self, seed: int, step: int) -> None:
        """Choose the windows of the pools for a step."""
        for part, noise in enumerate(self._pools.values()):
            noise.begin_step(seed, step, part)

    def _get_pool(self, rate: float) -> Noise:
        return self._pools.setdefault(rate, Noise(rate, POOL_SIZE))


def use_unfused_attention(model: Any) -> None:
    """Let a network of transformers compute unfused attention, with dropout from the pool."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(ATTENTION_NAME, compute_attention)
    AttentionMaskInterface.register(ATTENTION_NAME, eager_mask)
    model.set_attn_implementation(ATTENTION_NAME)


def compute_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Return the states [batch, tokens, heads, width] and the weights; query, key and value are
    [batch, heads, tokens, width].

    All of it is computed in the type of the products: autocast would go to fp32 for the softmax and
    back, which rounds the weights the same way and copies them twice.
    """
    with torch.autocast(query.device.type, enabled=False):
        scores = torch.matmul(
            query * (query.size(-1) ** -0.5 if scaling is None else scaling), key.transpose(2, 3)
        )
        if attention_mask is not None:
            scores = scores + attention_mask.to(scores.dtype)
        weights = torch.softmax(scores, dim=-1)
        if dropout and module.training:
            dropped = getattr(module, "dropout", None)
            weights = (
                dropped(weights)
                if isinstance(dropped, CheapDropout)
                else torch.dropout(weights, dropout, True)
            )
        return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights
