"""Chooses masked tokens, on the device, by hashes of a key that the host gives each sequence, so
that every device masks alike; drawn without replacement, as a share of the words (README.md).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
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


POSITION_BITS = 16  # of a sort key: random bits above, the position below, so that no two are equal
NOT_MASKABLE = 1 << 60  # added to a sort key


@dataclass(frozen=True)
class Replacement:
    """Shares of the masked positions with [MASK] and a random token; others keep their token."""

    mask_id: int
    mask_fraction: float
    random_fraction: float
    vocabulary_size: int
    first_random_id: int = 5  # the five special tokens come first


def count_slots(length: int, fraction: float) -> int:
    """Return the most tokens ever masked in one sequence of `length` tokens."""
    return max(1, math.ceil(length * fraction))


def draw_counts(
    rng: np.random.Generator, maskable: NDArray[np.int64], fraction: float
) -> NDArray[np.int64]:
    """Return how many tokens each sequence masks; the sum is the exact share of the batch."""
    ends = np.floor(np.cumsum(maskable) * fraction + rng.random()).astype(np.int64)
    return np.diff(ends, prepend=0)


def mask_tokens(
    input_ids: Tensor,
    maskable: Tensor,
    counts: Tensor,
    keys: Tensor,
    fraction: float,
    how: Replacement,
) -> dict[str, Tensor]:
    """Mask `counts` [sequences] of the maskable tokens; ids and maskable are [sequences, length].
    Return the masked ids, and of each slot [sequences, slots] its position, distinct in each row,
    its weight, 1 where it is used, and 31 random bits that seed the token sampled there.
    """
    length = input_ids.shape[1]
    slots = count_slots(length, fraction)
    bits = draw_bits(keys, length + 3 * slots)
    order, what, which, sampling = bits.split([length, slots, slots, slots], dim=1)
    places = torch.arange(length, device=input_ids.device)
    order = (order << POSITION_BITS) + places + torch.where(maskable, 0, NOT_MASKABLE)
    positions = order.topk(slots, dim=1, largest=False, sorted=True).indices
    used = torch.arange(slots, device=input_ids.device) < counts[:, None]
    chosen = input_ids.gather(1, positions)
    draw = to_uniform(what)
    random_ids = how.first_random_id + which % (how.vocabulary_size - how.first_random_id)
    is_random = draw < how.mask_fraction + how.random_fraction
    put = torch.where(is_random, random_ids, chosen)
    put = torch.where(draw < how.mask_fraction, how.mask_id, put)
    return {
        "masked_ids": input_ids.scatter(1, positions, torch.where(used, put, chosen)),
        "masked_positions": positions,
        "masked_weights": used.float(),
        "keys": sampling >> 1,
    }
