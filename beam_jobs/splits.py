"""On which side of the split a text falls: its hash alone decides, so equal texts never fall on two sides."""

import numpy as np

from beam_jobs.command import UserMistake

SPLITS = ("pretrain", "train", "dev", "test")
DEFAULT = "pretrain=80,train=8,dev=4,test=8"


def parse_shares(text: str) -> tuple[float, ...]:
    """`pretrain=80,train=8,dev=4,test=8` → upper bounds of the four sides in [0, 1]."""
    try:
        shares = {name: float(share) for name, share in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise UserMistake(f"--split {text}: write it like {DEFAULT}") from None
    if unknown := set(shares) - set(SPLITS):
        raise UserMistake(f"--split names {', '.join(sorted(unknown))}; there are {', '.join(SPLITS)}")
    if min(shares.values()) < 0 or not sum(shares.values()) > 0:
        raise UserMistake(f"--split {text}: shares must not be negative, and one must be above 0")
    bounds = np.cumsum([shares.get(name, 0.0) for name in SPLITS]) / sum(shares.values())
    return tuple(float(b) for b in bounds)


def sides(text_hashes: bytes, bounds: tuple[float, ...], seed: int) -> np.ndarray:
    """Index into SPLITS (int8) for each 16-byte hash. The seed only re-mixes the bits (splitmix64)."""
    with np.errstate(over="ignore"):
        z = np.frombuffer(text_hashes, dtype=">u8").reshape(-1, 2)[:, 1].astype(np.uint64)
        z = z + np.uint64((seed * 0x9E3779B97F4A7C15) % (1 << 64))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform = (z >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return np.minimum(np.searchsorted(np.array(bounds), uniform, side="right"), len(SPLITS) - 1).astype(np.int8)
