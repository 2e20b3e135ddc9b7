"""Chooses which tokens are masked, on the host, so that every device masks the same ones.

Where this differs from google-research/electra, and why:
  - positions are drawn without replacement: google draws with replacement, so that about 14.2%
    instead of 15% are distinct;
  - the probability is of the tokens that may be masked, not of all tokens including [CLS] and
    [SEP]: reviews are short and several share a sequence, so that special tokens would push the
    share of masked words far above it;
  - rounding is shared by the batch, so that the share is exact to one token per batch, not per
    sequence.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ALL = slice(None)


@dataclass(frozen=True)
class Masked:
    """A fixed number of slots per sequence; those with weight 0 are not used and change nothing."""

    positions: NDArray[np.int64]  # [sequences, slots], distinct in each row
    weights: NDArray[np.float32]  # [sequences, slots], 1 where the slot is used
    input_ids: NDArray[np.int64]  # [sequences, length], with [MASK] put in
    keys: NDArray[np.int64]  # [sequences, slots], 31 random bits: the seed of the token sampled
    total: int  # tokens masked in the whole batch


@dataclass(frozen=True)
class Replacement:
    """What stands at a masked position: [MASK], a random token, or (the rest) the token itself."""

    mask_id: int
    mask_fraction: float
    random_fraction: float
    vocabulary_size: int
    first_random_id: int = 5  # the five special tokens come first


def count_slots(length: int, fraction: float) -> int:
    """Return the most tokens ever masked in one sequence of `length` tokens."""
    return max(1, math.ceil(length * fraction))


def mask_tokens(
    rng: np.random.Generator,
    input_ids: NDArray[np.int64],
    maskable: NDArray[np.bool_],
    fraction: float,
    replacement: Replacement,
    mine: slice = ALL,
) -> Masked:
    """Mask `fraction` of the maskable tokens of a batch; both arrays are [sequences, length].

    Random numbers are drawn for the whole batch, and of it the rows `mine` are masked.
    """
    numbers = draw_counts(rng, maskable.sum(axis=1), fraction)
    width = count_slots(maskable.shape[1], fraction)
    positions, weights = choose_positions(rng, maskable, numbers, width, mine)
    input_ids, slots = input_ids[mine], (len(maskable), width)
    chosen = np.take_along_axis(input_ids, positions, axis=1)
    put = replace_tokens(rng, chosen, weights > 0, replacement, slots, mine)
    masked_ids = input_ids.copy()
    np.put_along_axis(masked_ids, positions, put, axis=1)
    keys = rng.integers(0, 2**31, size=slots, dtype=np.int64)[mine]
    return Masked(positions, weights, masked_ids, keys, int(np.minimum(numbers, width).sum()))


def choose_positions(
    rng: np.random.Generator,
    maskable: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    width: int,
    mine: slice = ALL,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return positions and weights, [sequences, width], of distinct tokens of each row of `mine`.

    Weight 1 marks those that are masked, `numbers` of each row.
    """
    order = rng.random(maskable.shape, dtype=np.float32)[mine]
    order[~maskable[mine]] = 2.0
    nearest = np.argpartition(order, width - 1, axis=1)[:, :width]
    by_order = np.argsort(np.take_along_axis(order, nearest, axis=1), axis=1)
    positions = np.take_along_axis(nearest, by_order, axis=1).astype(np.int64)
    return positions, (np.arange(width) < numbers[mine][:, None]).astype(np.float32)


def draw_counts(
    rng: np.random.Generator, maskable: NDArray[np.int64], fraction: float
) -> NDArray[np.int64]:
    """Return how many tokens each sequence masks, within one of its own exact share.

    The sum is the exact share of the batch.
    """
    ends = np.floor(np.cumsum(maskable) * fraction + rng.random()).astype(np.int64)
    return np.diff(ends, prepend=0)


def replace_tokens(
    rng: np.random.Generator,
    chosen: NDArray[np.int64],
    used: NDArray[np.bool_],
    how: Replacement,
    slots: tuple[int, int],
    mine: slice = ALL,
) -> NDArray[np.int64]:
    """Return the ids for the chosen positions of the rows `mine`; unused slots keep their token.

    `slots` is the shape of the whole batch.
    """
    draw = rng.random(slots, dtype=np.float32)[mine]
    random_ids = rng.integers(how.first_random_id, how.vocabulary_size, size=slots, dtype=np.int64)
    random_ids = random_ids[mine]
    put = np.where(draw < how.mask_fraction, how.mask_id, chosen)
    in_random = (draw >= how.mask_fraction) & (draw < how.mask_fraction + how.random_fraction)
    return np.where(used, np.where(in_random, random_ids, put), chosen)
