"""Assigns each text to a split by its hash alone, so equal texts are always on the same side."""

import numpy as np

from beam_jobs.core.errors import UserError

SPLITS = ("pretrain", "train", "dev", "test")
DEFAULT_SHARES = "pretrain=80,train=8,dev=4,test=8"


def parse_shares(text: str) -> tuple[float, ...]:
    """Turn `pretrain=80,train=8,dev=4,test=8` into the upper bounds of the splits in [0, 1]."""
    try:
        shares = {name: float(s) for name, s in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise UserError(f"--split {text}: write it like {DEFAULT_SHARES}") from None
    if unknown := set(shares) - set(SPLITS):
        raise UserError(
            f"--split names {', '.join(sorted(unknown))}; there are {', '.join(SPLITS)}"
        )
    if min(shares.values()) < 0 or not sum(shares.values()) > 0:
        raise UserError(f"--split {text}: shares must not be negative, and one must be above 0")
    bounds = np.cumsum([shares.get(name, 0.0) for name in SPLITS]) / sum(shares.values())
    return tuple(float(b) for b in bounds)


def assign_splits(text_hashes: bytes, bounds: tuple[float, ...], seed: int) -> np.ndarray:
    """Return an index into SPLITS (int8) for each 16-byte hash.

    The seed only mixes the bits again (splitmix64).
    """
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
