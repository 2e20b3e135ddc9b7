"""Which of my labels are wrong? Those to which models that were not trained on the review give a
small probability; and how many, by the answers that these models are surest of.
"""

import math
from dataclasses import dataclass

import numpy as np

from amazon_electra.model.evaluation.significance import compute_exact_interval

SUREST = 1 / 5
"""Share of each class's answers that count as right. A larger one counts the model's own mistakes,
a smaller one has a wide interval (docs/results.md)."""
MISTAKES = 0.12
"""Share of the answers that the model gets wrong, from which on these are counted too."""
MIN_SHARE = 0.01
"""Share of labels that the lower end of an estimate has to exceed before a report names it. It was
chosen on the demo and the samples of docs/results.md, and tried on no other dump."""


@dataclass(frozen=True)
class Suspicion:
    """A label that looks wrong."""

    place: int
    """Row of the example in the arrays."""
    suggested: int
    """Class that the model gives it."""
    confidence: float
    """Probability of that class."""
    own: float
    """Probability of the label that it has."""


@dataclass(frozen=True)
class WrongLabels:
    """Which labels look wrong, the likeliest first, and how many of `n` (None: a weak model)."""

    suspicions: list[Suspicion]
    n: int
    estimate: float | None
    low: float | None
    high: float | None
    steps: int = 1
    """From the label to the suggestion, at least."""

    @property
    def most_listed(self) -> int:
        """How many labels suspicious.csv lists: those that may be wrong, else MIN_SHARE of all."""
        if self.high is None or not is_claimed(self.low, self.n):
            return int(MIN_SHARE * self.n)
        return math.ceil(self.high)

    def describe(self) -> str:
        """Return a sentence for the report."""
        other = "another label" + f" {self.steps} or more steps away" * (self.steps > 1)
        if self.estimate is None:
            return (
                f"How many of {self.n:,} labels are wrong cannot be said: the model is too weak "
                "for that, its own mistakes are too many."
            )
        if not is_claimed(self.low, self.n):
            return (
                f"At most {self.high:,.0f} of {self.n:,} labels are wrong, by the reviews that the "
                "model is surest of: too few to tell them from its own mistakes."
            )
        return (
            f"About {self.estimate:,.0f} ({self.low:,.0f} to {self.high:,.0f}) of {self.n:,} "
            f"labels look wrong: so often do the reviews that the model is surest of have {other} "
            "than it gives them without having seen them."
        )


def is_claimed(low: float | None, n: int) -> bool:
    """Return whether a report names an estimate for `n` labels, by its lower end."""
    return (low or 0) > MIN_SHARE * n


def find_wrong_labels(probabilities: np.ndarray, labels: np.ndarray, steps: int = 1) -> WrongLabels:
    """Return which labels look wrong, and how many are. `probabilities` [n, classes] are out of
    fold and calibrated; `labels` int [n]. Listed is every review whose likeliest class is at least
    `steps` away (4 stars for 5 are a matter of taste), the least probable labels first. The model
    counts as right in the SUREST answers of each class: as often as labels differ there they are
    wrong among all. The rest are its mistakes; above MISTAKES there is no estimate.
    """
    n, classes = probabilities.shape
    near = abs(np.arange(classes) - labels[:, None]) < steps
    own, likeliest = (probabilities * near).sum(1), probabilities.argmax(1)
    confidence, differs = probabilities.max(1), abs(likeliest - labels) >= steps
    estimate, wrong, looked_at = 0.0, 0, 0
    for answered in (np.flatnonzero(likeliest == k) for k in range(classes)):
        order = answered[np.argsort(-confidence[answered], kind="stable")]
        surest = differs[order[: math.ceil(SUREST * len(order))]]
        estimate += float(len(order) * surest.mean()) if len(order) else 0
        wrong, looked_at = wrong + int(surest.sum()), looked_at + len(surest)
    suspicions = [
        Suspicion(int(i), int(likeliest[i]), float(confidence[i]), float(own[i]))
        for i in np.flatnonzero(differs)
    ]
    suspicions.sort(key=lambda one: (one.own, one.place))
    if differs.mean() - estimate / n > MISTAKES:
        return WrongLabels(suspicions, n, None, None, None, steps)
    low, high = compute_exact_interval(wrong, looked_at)
    scale = estimate * looked_at / wrong if wrong else float(n)
    return WrongLabels(suspicions, n, estimate, low * scale, high * scale, steps)
