"""What are more labels worth? A power law through the label curve (error = a × labels^-b), which
holds over the range that a dump has (Hestness et al. 2017, arXiv 1712.00409).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

MIN_POINTS = 3
"""Points of a curve that is forecast."""
PRIOR_SLOPE = (0.25, 0.25)
"""Mean and standard deviation of b before any point is seen: curves of reviews have 0.1 to 0.5."""
SCATTER = 0.1
"""Standard deviation of the logarithm of the error over draws of the labels, beside the noise of
the test reviews."""
DISAGREE = 0.2
"""Reviews that two models of one curve answer differently, as a share of the errors of both."""


@dataclass(frozen=True)
class Forecast:
    """The expected gain in accuracy of `more` labels, with its 95% interval."""

    labels: int
    more: int
    gain: float
    low: float
    high: float

    def describe(self) -> str:
        """Return a sentence for the report."""
        return (
            f"{self.more:,} more labels: {100 * self.gain:+.1f} points of accuracy "
            f"({100 * self.low:+.1f} to {100 * self.high:+.1f})."
        )


def forecast_gain(
    labels: Sequence[int], accuracies: Sequence[float], tests: Sequence[int], more: int
) -> Forecast | None:
    """Return the gain of `more` labels; None for fewer than MIN_POINTS points. Each point of the
    curve has its labels, its accuracy and the number of its test reviews; the last has all labels.
    """
    n = np.asarray(labels, float)
    if len(n) < MIN_POINTS:
        return None
    tested = np.asarray(tests, float)
    errors = (1 - np.asarray(accuracies)) * tested
    share = (errors + 0.5) / (tested + 1)
    x, y = np.log(n / n[-1]), np.log(share)
    precision = 1 / ((1 - share) / (share * tested) + SCATTER**2)
    design = np.stack([np.ones_like(x), -x], 1)
    mean, deviation = PRIOR_SLOPE
    information = design.T * precision @ design + np.diag([0, 1 / deviation**2])
    covariance = np.linalg.inv(information)
    level, slope = covariance @ (design.T * precision @ y + np.array([0, mean / deviation**2]))
    error = float(np.exp(level))
    step = float(np.log1p(more / n[-1]))
    gain = error * (1 - np.exp(-slope * step))
    of_slope = error * step * np.exp(-slope * step) * sqrt(covariance[1, 1])
    of_test = sqrt(2 * DISAGREE * error / tested[-1])
    margin = 1.96 * sqrt(of_slope**2 + of_test**2)
    return Forecast(int(n[-1]), more, float(gain), float(gain - margin), float(gain + margin))
