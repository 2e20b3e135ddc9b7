"""Assigns each review to a split by a hash of its text, so equal texts are always on the same side,
or of its product or user, or by its day, so that the latest reviews are test."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xxhash

from amazon_electra.beam_jobs.core.errors import require

SPLITS = ("pretrain", "train", "dev", "test")
DEFAULT_SHARES = "pretrain=80,train=8,dev=4,test=8"
KEY_FIELDS = {"product": "item_id", "user": "user_id", "time": "timestamp"}
"""The field of a review that a split is by, unless it is by the text."""


def read_shares(text: str) -> dict[str, float]:
    """Return the share of each split that `pretrain=80,train=8,dev=4,test=8` names."""
    try:
        shares = {name: float(s) for name, s in (part.split("=") for part in text.split(","))}
    except ValueError:
        shares = {"": 0.0}
    is_known = set(shares) <= set(SPLITS)
    is_right = is_known and min(shares.values()) >= 0 and sum(shares.values()) > 0
    require(is_right, f"write it like {DEFAULT_SHARES}; one share is above 0", "split", text)
    return shares


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the upper bounds of the splits in [0, 1] by their shares."""
    shares = read_shares(text)
    bounds = np.cumsum([shares.get(name, 0.0) for name in SPLITS]) / sum(shares.values())
    return tuple(float(b) for b in bounds)


def hash_identifier(value: Any) -> bytes | None:
    """Return 16 bytes for a product or user, as text, None for none: 1 and "1" are one."""
    if value is None or value != value:  # NaN
        return None
    text = str(value).strip()
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")) if text else None


def assign_splits(text_hashes: bytes, bounds: tuple[float, ...], seed: int) -> np.ndarray:
    """Return an index into SPLITS (int8) for each 16-byte hash; the seed mixes it (splitmix64)."""
    with np.errstate(over="ignore"):
        z = np.frombuffer(text_hashes, dtype=">u8").reshape(-1, 2)[:, 1].astype(np.uint64)
        z = z + np.uint64((seed * 0x9E3779B97F4A7C15) % (1 << 64))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform = (z >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return np.minimum(
        np.searchsorted(np.array(bounds), uniform, side="right"), len(SPLITS) - 1
    ).astype(np.int8)


def find_cut_offs(days: Mapping[int, int], bounds: tuple[float, ...]) -> tuple[int, int]:
    """Return the first day of dev and the first of test, by the shares of the bounds; `days` counts
    the reviews of each day. UserError where there are fewer days than sides.
    """
    ordered = sorted(days)
    before = np.cumsum([0, *(days[day] for day in ordered)]) / sum(days.values() or [1])
    has_dev, has_test = bounds[2] > bounds[1], bounds[2] < 1
    why = f"the reviews are of {len(ordered)} distinct days; to train on the earlier and test on "
    why += f"the later it takes {1 + has_dev + has_test}"
    is_enough = len(ordered) > has_dev + has_test and bounds[1]
    require(is_enough, why, "split_by", "time")
    first, test = 1 + has_dev, len(ordered)
    if has_test:
        test = first + int(np.argmin(np.abs(before[first:-1] - bounds[2])))
    dev = 1 + int(np.argmin(np.abs(before[1:test] - bounds[1]))) if has_dev else test
    ordered.append(ordered[-1] + 1)
    return ordered[dev], ordered[test]


def assign_by_day(
    days: Sequence[int | None],
    cut_offs: tuple[int, int],
    text_hashes: bytes,
    bounds: tuple[float, ...],
    seed: int,
) -> np.ndarray:
    """Return an index into SPLITS (int8) by the day of dev and test, else by the text."""
    sides = assign_splits(text_hashes, (bounds[0] / bounds[1], 1.0, 1.0, 1.0), seed)
    known = np.array([cut_offs[0] - 1 if day is None else day for day in days], np.int64)
    late = np.searchsorted(np.array(cut_offs), known, side="right")
    return np.where(late > 0, late + 1, sides).astype(np.int8)
