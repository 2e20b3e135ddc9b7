"""Where can I trust it? The threshold from which on answers are right as often as was asked, by
fixed-sequence testing (Angelopoulos et al. 2021, "Learn then Test"): a fixed grid is tried from the
highest down, each threshold by the Clopper–Pearson bound at 95%, up to the first that fails, which
needs no correction. Out-of-fold scores are of models with fewer labels: they promise rather less.
"""

import math
from dataclasses import dataclass

import numpy as np

from amazon_electra.model.evaluation.significance import compute_exact_interval

LEVEL = 0.95
"""Confidence of a promise."""
SHARES_TO_BEGIN = (0.2, 0.4)
"""Share of the reviews above the first threshold: with few, one wrong answer ends the search.
The first share, or up to the second where that has less than three times what the bound needs."""
GRID = 1 / (1 + np.exp(-np.arange(9.0, -5.0, -0.1)))
"""Probabilities from 0.9999 down to 0.007."""
TARGETS = (0.8, 0.9, 0.95, 0.97, 0.99)
"""That the report shows beside the one that was asked for."""


@dataclass(frozen=True)
class Trust:
    """A promise: above `threshold`, at least `target` of the answers are right."""

    target: float
    n: int
    threshold: float | None
    """Least probability of the answer; None: no threshold keeps the promise."""
    answered: float = 0.0
    """Share of reviews above it, with its 95% interval."""
    low: float = 0.0
    high: float = 0.0
    accuracy: float | None = None
    """Share of right answers above it, as measured; the promise is `target`."""

    def describe(self) -> str:
        """Return a sentence for the report."""
        if self.threshold is None:
            return (
                f"No answer can be promised to be right in at least {self.target:.0%}: "
                f"{self.n:,} labelled reviews do not show it."
            )
        return (
            f"It answers {self.answered:.0%} ({self.low:.0%} to {self.high:.0%}) of the reviews "
            f"and is right in at least {self.target:.0%} of them (Clopper–Pearson bound over a "
            f"fixed sequence of thresholds, {LEVEL:.0%}; measured: {self.accuracy:.1%}). The rest "
            f"is for a person: `ask`, where the probability is below {self.threshold:.3f}."
        )


def choose_threshold(confidence: np.ndarray, is_right: np.ndarray, target: float) -> Trust:
    """Return the lowest threshold that keeps the promise, for all but 1 - LEVEL of dumps.
    `confidence` float [n] is the probability of each answer, `is_right` bool [n]; both are out of
    fold, of reviews that stand for those to come.
    """
    from scipy.stats import beta  # takes a second to load

    n = len(confidence)
    order = np.argsort(-confidence, kind="stable")
    wrong = np.concatenate([[0], np.cumsum(~is_right[order])])
    counts = np.searchsorted(-confidence[order], -GRID, side="right")
    needed = math.log(1 - LEVEL) / math.log(target)  # answers, all of them right
    first, second = (share * n for share in SHARES_TO_BEGIN)
    least = max(needed, first, min(3 * needed, second))
    chosen, kept = None, 0
    for threshold, count in zip(GRID.tolist(), counts.tolist(), strict=True):
        if count < least or count == kept:
            continue
        right = count - int(wrong[count])
        if not right or beta.ppf(1 - LEVEL, right, count - right + 1) < target:
            break
        chosen, kept = threshold, count
    if chosen is None:
        return Trust(target, n, None)
    low, high = compute_exact_interval(kept, n)
    return Trust(target, n, chosen, kept / n, low, high, 1 - int(wrong[kept]) / kept)
