"""Draws random numbers by counting: each is a hash of a key and its own number.

So every device, every number of processes and a resumed run draw the same ones, and a device needs
nothing from the host but the keys.
"""

import torch
from torch import Tensor

_MASK32 = 0xFFFFFFFF
_GOLDEN_RATIO = 0x9E3779B9


def draw_bits(keys: Tensor, numbers: int) -> Tensor:
    """Return [keys, numbers] integers of 32 random bits (int64) for keys [keys]."""
    # The mask changes nothing, but torch.compile would make an index of a range times a constant,
    # and Triton takes no index beyond 32 bits (torch 2.11 on an H200).
    steps = torch.arange(1, numbers + 1, device=keys.device, dtype=torch.int64) & _MASK32
    return hash_bits(hash_bits(keys)[:, None] + steps * _GOLDEN_RATIO)


def to_uniform(bits: Tensor) -> Tensor:
    """Return numbers above 0 and below 1 (fp32) of 32 random bits each."""
    uniform = (bits >> 8).float().add_(0.5) / (1 << 24)
    return uniform.clamp(max=1 - 2**-24)


def hash_bits(bits: Tensor) -> Tensor:
    """Hash 32-bit integers (lowbias32 by C. Wellons: each input bit flips half of the output)."""
    bits = bits & _MASK32
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & _MASK32
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & _MASK32
    return bits ^ (bits >> 16)
