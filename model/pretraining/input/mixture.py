"""Mixes new and old sequences into one stream, so that a new dump does not displace the earlier.

Which of the two a place in the stream belongs to follows from the place alone, and so does how
many sequences of each source lie before it. A place stays one number, independent of the number of
processes, and each source is gone through as if it were alone: every sequence once an epoch, none
left out where a run is resumed.

Ibrahim et al. 2024 (arXiv 2403.08763) found that replaying a share of the old data while the
learning rate is warmed up again is as good as training on everything anew: 5% where new and old
are alike, up to 50% where they are not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.pretraining.input.sequences import Rows, Shards, Stream

REPLAYED = 1  # keeps the random order of the old sequences apart from that of the new ones
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
    """Open earlier shards; UserError if their vocabulary or length differs from the new ones."""
    earlier = [Shards.open(folder, "replay") for folder in folders]
    for old in earlier:
        if old.vocabulary_fingerprint != new.vocabulary_fingerprint:
            raise UserError(
                f"made with the vocabulary "
                f"{old.vocabulary_fingerprint[:12]}, {new.folder} with "
                f"{new.vocabulary_fingerprint[:12]}; make both with the same one",
                "replay",
                old.folder,
            )
        if old.max_length != new.max_length:
            raise UserError(
                f"length {old.max_length}, {new.folder} has {new.max_length}", "replay", old.folder
            )
    return Replay(Shards.pool(earlier), parse_ratio(ratio))


def parse_ratio(text: str) -> Fraction:
    """Parse 0.5 as exactly 1/2, so that no rounding differs from one machine to another."""
    try:
        ratio = Fraction(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        raise UserError("write a number such as 0.5", "replay_ratio", text) from None
    if not 0 < ratio < 1 or ratio.denominator > FINEST:
        raise UserError("must lie between 0 and 1, with six digits at most", "replay_ratio", text)
    return ratio


class Mixture:
    """A stream of sequences with a fixed share of old ones, spread evenly."""

    def __init__(self, new: Stream, old: Stream, ratio: Fraction) -> None:
        self._new, self._old, self._ratio = new, old, ratio

    @staticmethod
    def open(new: Shards, replay: Replay, seed: int) -> "Mixture":
        """Return the mixture of new shards and replayed ones, each in an order of its own."""
        other_seed = int(np.random.SeedSequence([seed, REPLAYED]).generate_state(1)[0])
        return Mixture(Stream(new, seed), Stream(replay.shards, other_seed), replay.ratio)

    def iterate_batches(self, position: int, size: int) -> Iterator[Rows]:
        """Yield batches of `size` sequences, from sequence number `position` on."""
        before = self.count_old_before(position)
        new = self._new.iterate_portions(
            position - before, (size - n for n in self._count_old_sequences(position, size))
        )
        old = self._old.iterate_portions(before, self._count_old_sequences(position, size))
        for start, new_rows, old_rows in zip(count(position, size), new, old, strict=False):
            places = np.argsort(
                self.is_old(start, size), kind="stable"
            )  # of the new ones, then of the old ones
            yield Rows.join([new_rows, old_rows]).take(np.argsort(places))

    def _count_old_sequences(self, position: int, size: int) -> Iterator[int]:
        """Yield how many sequences of each batch are old."""
        return (
            self.count_old_before(start + size) - self.count_old_before(start)
            for start in count(position, size)
        )

    def count_old_before(self, position: int) -> int:
        """Return how many of the first `position` sequences are old."""
        return position * self._ratio.numerator // self._ratio.denominator

    def is_old(self, start: int, size: int) -> NDArray[np.bool_]:
        """Return [size] flags for the places from `start` on."""
        before = [self.count_old_before(place) for place in range(start, start + size + 1)]
        return np.diff(np.array(before)) > 0
