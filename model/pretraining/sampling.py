"""Sampling the generator's tokens: the Gumbel-max trick in two stages.

The plain trick adds one Gumbel number to every logit and takes the maximum: at 30,522 entries that costs more than the
exponentials of the loss. Here a block of entries is drawn first, by the block's log-sum-exp, then an entry within it:
by the chain rule the same distribution, with about 2 · sqrt(entries) random numbers per token instead of one per entry.

The numbers come from an integer hash of one key per token, drawn on the host, so that every device, and every number of
processes, draws the same tokens from the same logits.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

LOWEST = -1e30  # a logit nothing can choose; finite, since -inf - -inf is NaN
_MASK32 = 0xFFFFFFFF


def sample(logits: Tensor, keys: Tensor, temperature: float = 1.0) -> Tensor:
    """logits [tokens, entries], keys [tokens] → ids [tokens], each drawn from softmax(logits / temperature)."""
    tokens, entries = logits.shape
    width = 1 << math.ceil(math.log2(entries) / 2)
    blocks = -(-entries // width)
    padded = functional.pad(logits, (0, blocks * width - entries), value=LOWEST) if entries % width else logits
    scaled = padded.view(tokens, blocks, width).float() / temperature
    noise = gumbel(keys, blocks + width)
    block = (torch.logsumexp(scaled, dim=2) + noise[:, :blocks]).argmax(dim=1)
    inside = scaled.gather(1, block[:, None, None].expand(tokens, 1, width)).squeeze(1)
    return block * width + (inside + noise[:, blocks:]).argmax(dim=1)


def gumbel(keys: Tensor, numbers: int) -> Tensor:
    """keys [tokens], 31 random bits each → [tokens, numbers] standard Gumbel numbers."""
    steps = torch.arange(1, numbers + 1, device=keys.device, dtype=torch.int64) * 0x9E3779B9
    uniform = (_mix(_mix(keys)[:, None] + steps) >> 8).float().add_(0.5) / (1 << 24)
    return -torch.log(-torch.log(uniform.clamp(max=1 - 2**-24)))


def _mix(bits: Tensor) -> Tensor:
    """A 32-bit integer hash (lowbias32 by C. Wellons: every input bit changes each output bit about half the time)."""
    bits = bits & _MASK32
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & _MASK32
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & _MASK32
    return bits ^ (bits >> 16)
