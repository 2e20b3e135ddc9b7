"""Where is it weak? The accuracy of each slice of the reviews: by length, language, file and month.
A weak one is worse than the rest by Fisher's exact test, corrected for the number of slices, and so
on held-out and on test reviews alike. Classes are no slices: the rarest is always worse.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.languages import count_words, find_language
from amazon_electra.model.evaluation.significance import compute_exact_interval

MIN_REVIEWS = 20
"""Reviews of a slice, at least."""
MAX_VALUES = 20
"""Slices by one field: those of most reviews."""
MAX_REVIEWS = 5_000
"""Reviews that are looked at: finding their languages takes time."""
LEVEL = 0.05
LENGTHS = (10, 30, 100)
"""Words between the slices by length."""


@dataclass(frozen=True)
class Slice:
    """Reviews that share a value of a field."""

    field: str
    value: str
    n: int
    accuracy: float
    low: float
    high: float
    """Clopper and Pearson's 95% interval."""
    rest: float
    """Accuracy of the other reviews."""
    p: float
    """That it is as good as the rest: corrected (Holm)."""
    is_confirmed: bool = True
    """Whether it is worse than the rest in each part by itself too."""

    @property
    def is_weak(self) -> bool:
        return self.p < LEVEL and self.is_confirmed

    def describe(self) -> str:
        """Return a clause for the report."""
        interval = f"{self.low:.0%} to {self.high:.0%}"
        about = f"{self.accuracy:.0%} ({interval}) of {self.n:,} reviews with {self.field}"
        return f"{about} {self.value} are right, {self.rest:.0%} of the others"


def describe_fields(
    texts: Sequence[str], records: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return the values of each field by which reviews are sliced."""
    edges = ["0", *map(str, LENGTHS)]
    names = [f"{a} to {b}" for a, b in pairwise(edges)] + [f"over {edges[-1]}"]
    counts = np.searchsorted(LENGTHS, [count_words(text) for text in texts])
    return {
        "length": [f"{names[place]} words" for place in counts],
        "language": [find_language(text) or "unknown" for text in texts],
        "file": [str(record.get("file") or "unknown") for record in records],
        "month": [str(record.get("month") or "unknown") for record in records],
    }


def find_slices(
    right: Sequence[bool] | np.ndarray,
    fields: Mapping[str, Sequence[str]],
    is_test: Sequence[bool] | np.ndarray | None = None,
) -> list[Slice]:
    """Return the slices of at least MIN_REVIEWS reviews and at most half of all, the weakest first.
    `right` is bool [n], `fields` has the value of each review by field, `is_test`, bool [n], says
    which reviews are apart from the others: a slice must be weak on both sides.
    """
    from scipy.stats import fisher_exact  # takes a second to load

    right = np.asarray(right, bool)
    every = np.ones(len(right), bool)
    apart = every if is_test is None else np.asarray(is_test, bool)
    parts = [part for part in (apart, ~apart) if part.any()] if is_test is not None else []

    def test(inside: np.ndarray, part: np.ndarray) -> float:
        """Return p that the answers inside are no worse than the others of a part."""
        counts = [
            [int((right & own & part).sum()), int((~right & own & part).sum())]
            for own in (inside, ~inside)
        ]
        return float(fisher_exact(counts, alternative="less").pvalue)

    found = []
    for name, values in fields.items():
        counts = Counter(values)
        for value, n in counts.most_common(MAX_VALUES):
            if n < MIN_REVIEWS or 2 * n > len(values):
                continue
            inside = np.array([one == value for one in values])
            hits, others = int(right[inside].sum()), int(right[~inside].sum())
            interval = compute_exact_interval(hits, n)
            about = name, value, n, hits / n, *interval, others / (len(values) - n)
            is_confirmed = all(test(inside, part) < LEVEL for part in parts)
            found.append((test(inside, every), about, is_confirmed))
    found.sort(key=lambda one: one[0])
    slices, corrected = [], 0.0
    for place, (p, about, is_confirmed) in enumerate(found):
        corrected = max(corrected, min(1.0, p * (len(found) - place)))
        slices.append(Slice(*about, corrected, is_confirmed))
    return slices
