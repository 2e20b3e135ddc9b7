"""New sequences and old ones in one stream: training goes on with a new dump and does not forget the earlier ones.

Which of the two a place in the stream belongs to follows from the place alone, and so does how many sequences of each
source lie before it. A place stays one number, independent of the number of processes, and each source is gone through
as if it were alone: every sequence once an epoch, none left out where a run is resumed.

Replaying a share of the old data while the learning rate is warmed up again is what Ibrahim et al. 2024 (arXiv
2403.08763) found to be as good as training on everything anew: 5% where new and old are alike, up to 50% where they
are not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.command import UserMistake
from model.pretraining.sequences import Rows, Shards, Stream

REPLAYED = 1  # tells the random order of the old sequences from that of the new ones
FINEST = 1_000_000  # parts a ratio is given in


@dataclass(frozen=True)
class Replay:
    """Earlier shards, as one pool, and their share of the sequences."""

    shards: Shards
    ratio: Fraction

    @property
    def identity(self) -> dict[str, str]:
        return {"replay": self.shards.fingerprint, "replay_ratio": str(self.ratio)}


def open_replay(new: Shards, folders: Sequence[Path], ratio: str) -> Replay:
    """The earlier shards, found to be of the same vocabulary and length as the new ones."""
    earlier = [Shards.open(folder, "--replay") for folder in folders]
    for old in earlier:
        if old.vocabulary_fingerprint != new.vocabulary_fingerprint:
            raise UserMistake(
                f"--replay {old.folder}: made with the vocabulary {old.vocabulary_fingerprint[:12]}, "
                f"{new.folder} with {new.vocabulary_fingerprint[:12]}; make both with the same one"
            )
        if old.max_length != new.max_length:
            raise UserMistake(f"--replay {old.folder}: length {old.max_length}, {new.folder} has {new.max_length}")
    return Replay(Shards.pool(earlier), parse_ratio(ratio))


def parse_ratio(text: str) -> Fraction:
    """0.5 → 1/2, exactly what is written: no rounding may differ from one machine to another."""
    try:
        ratio = Fraction(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        raise UserMistake(f"--replay_ratio {text}: write a number such as 0.5") from None
    if not 0 < ratio < 1 or ratio.denominator > FINEST:
        raise UserMistake(f"--replay_ratio {text}: must lie between 0 and 1, with six digits at most")
    return ratio


class Mixture:
    """A stream of sequences of which a fixed share is old, spread evenly."""

    def __init__(self, new: Stream, old: Stream, ratio: Fraction) -> None:
        self._new, self._old, self._ratio = new, old, ratio

    @staticmethod
    def of(new: Shards, replay: Replay, seed: int) -> "Mixture":
        other_seed = int(np.random.SeedSequence([seed, REPLAYED]).generate_state(1)[0])
        return Mixture(Stream(new, seed), Stream(replay.shards, other_seed), replay.ratio)

    def batches(self, position: int, size: int) -> Iterator[Rows]:
        """Batches of `size` sequences; the first starts at sequence number `position` of the mixture."""
        before = self.old_before(position)
        new = self._new.portions(position - before, (size - n for n in self._old_counts(position, size)))
        old = self._old.portions(before, self._old_counts(position, size))
        for start, new_rows, old_rows in zip(count(position, size), new, old, strict=False):
            places = np.argsort(self.is_old(start, size), kind="stable")  # of the new ones, then of the old ones
            yield Rows.join([new_rows, old_rows]).take(np.argsort(places))

    def _old_counts(self, position: int, size: int) -> Iterator[int]:
        """How many sequences of each batch are old."""
        return (self.old_before(start + size) - self.old_before(start) for start in count(position, size))

    def old_before(self, position: int) -> int:
        """How many of the first `position` sequences are old."""
        return position * self._ratio.numerator // self._ratio.denominator

    def is_old(self, start: int, size: int) -> NDArray[np.bool_]:
        """[size], for the places from `start` on."""
        return np.diff(np.array([self.old_before(place) for place in range(start, start + size + 1)])) > 0
