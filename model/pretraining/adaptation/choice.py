"""Decides, by what a probe judges rightly, which state of a training is worth writing.

Two states are compared on the same dev reviews, so that the error is that of their difference:
where they agree on most reviews it is a fraction of that of either accuracy.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.pretraining.adaptation.config import AdaptationConfig

ACCURACY = "probe_accuracy"
Judged = NDArray[np.bool_]
"""Which dev reviews a probe judges rightly, [reviews]."""
CLOSE = 1.0
"""Standard errors within which a state is as good as the best (the rule of one standard error,
Breiman et al. 1984, section 3.4.3).
"""
WORSE = 2.0
"""Standard errors by which a state that has read enough must be worse than the loaded encoder not
to be written.
"""


def is_worth_writing(state: Judged, best: Judged, origin: Judged, margin: float) -> bool:
    """Return whether a state takes the place of those before it: it beats the loaded encoder by
    more than a review and `margin` standard errors, and stays within CLOSE of the best of them.

    So of states that the probe cannot tell apart the latest is written, which has read the most.
    The review is the continuity correction of McNemar's test (Edwards 1948): two that are won and
    none that is lost, of hundreds, are no evidence.
    """
    gain, gain_error = compare_accuracies(state, origin)
    loss, loss_error = compare_accuracies(best, state)
    return gain > 1 / len(state) + margin * gain_error and loss <= CLOSE * loss_error


def is_worse(state: Judged, origin: Judged) -> bool:
    """Return whether a state is worse than the loaded encoder by more than chance explains."""
    loss, error = compare_accuracies(origin, state)
    return loss > WORSE * error


def compare_accuracies(one: Judged, other: Judged) -> tuple[float, float]:
    """Return by how much the first has the higher accuracy, and the standard error of that."""
    differences = one.astype(np.float64) - other
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return float(differences.mean()), error


@dataclass
class Choice:
    """What a probe has said of the states of a training so far; a checkpoint keeps it."""

    origin_accuracy: float = 0.0  # of the loaded encoder
    best_accuracy: float = 0.0
    chosen_accuracy: float = 0.0  # of the state that would be written now
    last_accuracy: float = 0.0
    origin: str = ""  # what it judges rightly, as `pack_judged` writes it
    best: str = ""
    reviews: int = 0
    is_last_chosen: bool = False  # so that the state noted last is the one to write now
    is_trusted: bool = False  # the state that would be written now: for the tokens it has read

    def note(self, judged: Judged, adaptation: AdaptationConfig, tokens: int = 0) -> None:
        """Note what is judged rightly at the state of this moment, after so many tokens, the first
        time at the loaded encoder, and choose between that state and those before.
        """
        self.last_accuracy = float(judged.mean())
        if not self.origin:
            self.reviews, self.origin = len(judged), pack_judged(judged)
            self.best, self.best_accuracy = self.origin, self.last_accuracy
            self.origin_accuracy = self.chosen_accuracy = self.last_accuracy
            return
        best, origin = (unpack_judged(text, self.reviews) for text in (self.best, self.origin))
        has_read_enough = 0 < adaptation.trusted_tokens <= tokens
        if has_read_enough:
            is_chosen = not is_worse(judged, origin)
        else:
            is_chosen = is_worth_writing(judged, best, origin, adaptation.probe_margin)
        self.is_last_chosen = is_chosen and not adaptation.write_last
        if is_chosen or adaptation.write_last:
            self.chosen_accuracy, self.is_trusted = self.last_accuracy, has_read_enough
        if self.last_accuracy > self.best_accuracy:
            self.best_accuracy, self.best = self.last_accuracy, pack_judged(judged)

    def describe_fall(self, step: int) -> str | None:
        """Return a warning where the loaded encoder is better than a later state; else None."""
        if not step or self.last_accuracy >= self.origin_accuracy:
            return None
        return (
            f"step {step:,}: the probe has {self.last_accuracy:.1%}, the loaded encoder "
            f"{self.origin_accuracy:.1%}: training has made it worse so far"
        )

    def describe(self, step: int, adaptation: AdaptationConfig) -> str:
        """Return one line that compares the states and says that the one of `step` is written."""
        compared = (
            f"probe on {self.reviews:,} dev reviews: the loaded encoder "
            f"{self.origin_accuracy:.1%}, the last state {self.last_accuracy:.1%}"
        )
        if adaptation.write_last:
            return f"{compared}, which is written (write_last)"
        if step == 0:
            return (
                f"{compared}; no state beat the loaded one by more than a review and "
                f"{adaptation.probe_margin:g} standard errors of the difference (probe_margin): "
                "its weights are written as they were. Try a lower learning_rate or "
                "trunk_learning_rate, or more text"
            )
        if self.is_trusted:
            return (
                f"{compared}; written is that of step {step} with {self.chosen_accuracy:.1%}, the "
                f"latest after {adaptation.trusted_tokens:,} tokens (trusted_tokens) that is not "
                f"worse than the loaded one by {WORSE:g} standard errors"
            )
        has_fallen = self.last_accuracy < self.origin_accuracy
        return (
            f"{compared}, the best {self.best_accuracy:.1%}; written is that of step {step} with "
            f"{self.chosen_accuracy:.1%}, the latest within a standard error of the best"
            f"{'; training on made it worse' if has_fallen else ''}"
        )


def pack_judged(judged: Judged) -> str:
    """Return a text that JSON can hold."""
    return np.packbits(judged).tobytes().hex()


def unpack_judged(text: str, reviews: int) -> Judged:
    """Return what `pack_judged` was given, of so many reviews."""
    packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    return np.unpackbits(packed, count=reviews).astype(np.bool_)
