"""Intervals and paired tests: what a difference between two arms is worth.

A result varies for two reasons: other test examples could have been drawn, and another seed (head, order, training
sample) gives another network. Examples are resampled by a paired bootstrap; where there are several seeds their
variance is added (two-way random effects) and the interval is a t interval with Satterthwaite's degrees of freedom, so
that three lucky seeds are not evidence. tests/model/test_significance.py simulates both: intervals cover 95%, and
where there is no difference 5% of the tests say there is one (2 to 8% with three seeds, depending on how much they
vary; two seeds can tell less: up to 13%).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from model.command import UserMistake
from model.evaluation.metrics import BINS, Metric
from model.evaluation.predictions import Predictions

SAMPLES = 2000
"""Bootstrap samples, and permutations of the randomization test."""
LEVEL = 0.95
PROPORTIONS = ("accuracy", "exact_match")
LARGEST_BLOCK = 4_000_000
"""Weights (samples × examples) held at once, 32 MB."""


@dataclass(frozen=True)
class Comparison:
    """Arm a minus arm b on the same examples; seeds are paired."""

    metric: str
    difference: float
    low: float
    high: float
    p: float
    """Two-sided, seeds included where there are several, else the randomization test's."""
    p_randomization: float
    """Approximate randomization over examples, the seeds as they are (Noreen 1989); of one seed's accuracies it is
    McNemar's exact test, by sampling."""
    examples: int
    seeds: int
    p_holm: float | None = None
    """`p` corrected for the other comparisons of the same table."""

    @property
    def evidence(self) -> bool:
        return (self.p if self.p_holm is None else self.p_holm) < 1 - LEVEL

    def words(self, a: str, b: str, better: str) -> str:
        """The finding as a sentence's predicate."""
        if not self.evidence:
            return f"no evidence of a difference between {a} and {b}"
        return f"{a} is better than {b}" if self.a_wins(better) else f"{b} is better than {a}"

    def a_wins(self, better: str) -> bool:
        """`better`: "higher" or "lower", whether there is evidence or not."""
        return (self.difference > 0) == (better == "higher")

    def swapped(self) -> "Comparison":
        """Arm b minus arm a."""
        return replace(self, difference=-self.difference, low=-self.high, high=-self.low)


def interval(metric: Metric, predictions: Predictions, seed: int = 0, samples: int | None = None) -> dict[str, float]:
    """Value with its percentile bootstrap interval over examples; see `_around` for where that would be wrong."""
    columns = metric.columns(predictions)
    sums, resampled = columns.sum(0), _resampled([columns], seed, samples or SAMPLES)[0]
    value, values = float(metric.value(sums)), metric.value(resampled)
    low, high = _percentiles(values)
    if metric.name == "ece":
        half = _half_width(np.array([value]), values[None], len(columns))
        low, high = _around(metric, value, half, _lift(sums, resampled))
    if metric.name in PROPORTIONS and value in (0.0, 1.0):
        low, high = _all_or_none(value, len(columns))
    return {"value": value, "low": low, "high": high}


def pooled(metric: Metric, seeds: Sequence[Predictions], seed: int = 0) -> dict[str, float]:
    """Mean over the seeds with an interval over examples and seeds."""
    if len(seeds) == 1:
        return interval(metric, seeds[0], seed)
    columns = [metric.columns(p) for p in _aligned(seeds)]
    sums, resampled = np.array([c.sum(0) for c in columns]), _resampled(columns, seed, SAMPLES)
    full = metric.value(sums)
    value, half = float(full.mean()), _half_width(full, metric.value(resampled), len(columns[0]))
    lift = float(np.mean([_lift(*one) for one in zip(sums, resampled, strict=True)])) if metric.name == "ece" else 0.0
    low, high = _around(metric, value, half, lift)
    if metric.name in PROPORTIONS and (full == full[0]).all() and value in (0.0, 1.0):
        low, high = _all_or_none(value, len(columns[0]))
    return {"value": value, "low": low, "high": high}


def _around(metric: Metric, value: float, half: float, lift: float) -> tuple[float, float]:
    """`lift` is what noise alone may have added: the truth may lie so much lower."""
    low, high = np.clip([value - lift - half, value + half], *metric.bounds)
    return float(low), float(high)


def _lift(sums: np.ndarray, resampled: np.ndarray) -> float:
    """How far noise lifts a calibration error: its bins count by their absolute value, so that errors add up.

    sums [BINS + 1], resampled [samples, BINS + 1]. A bin within two standard errors of none is taken to have none.
    """
    error, noise = sums[:BINS], resampled[:, :BINS] - sums[:BINS]
    shown = np.where(np.abs(error) > 2 * noise.std(0), error, 0.0)
    return float((np.abs(shown + noise).sum(1).mean() - np.abs(shown).sum()) / sums[BINS])


def _all_or_none(value: float, n: int) -> tuple[float, float]:
    """Of a share of n examples that is 0 or 1 (Clopper and Pearson 1934): a bootstrap of equal values has no width."""
    edge = ((1 - LEVEL) / 2) ** (1 / n)
    return (edge, 1.0) if value == 1.0 else (0.0, 1.0 - edge)


def compare(metric: Metric, a: Sequence[Predictions], b: Sequence[Predictions], seed: int = 0) -> Comparison:
    """Paired comparison of two arms; `a[i]` and `b[i]` are of the same seed."""
    if len(a) != len(b) or not a:
        raise UserMistake(f"arms of {len(a)} and {len(b)} seeds cannot be compared: give both the same seeds")
    every = _aligned([*a, *b])
    of_a = [metric.columns(p) for p in every[: len(a)]]
    of_b = [metric.columns(p) for p in every[len(a) :]]
    full = np.array([float(metric.value(x.sum(0)) - metric.value(y.sum(0))) for x, y in zip(of_a, of_b, strict=True)])
    both = metric.value(_resampled([*of_a, *of_b], seed, SAMPLES))
    resampled = both[: len(a)] - both[len(a) :]
    difference = float(full.mean())
    p_randomization = _randomization(metric, of_a, of_b, seed)
    if len(a) == 1:
        low, high, p = *_percentiles(resampled[0]), p_randomization
    else:
        half = _half_width(full, resampled, len(of_a[0]))
        widest = metric.bounds[1] - metric.bounds[0]
        low, high = (float(end) for end in np.clip([difference - half, difference + half], -widest, widest))
        p = _p(full, resampled, len(of_a[0]))
    return Comparison(metric.name, difference, low, high, p, p_randomization, len(of_a[0]), len(a))


def with_holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Each with its p corrected for there being several (Holm 1979)."""
    adjusted = holm([c.p for c in comparisons])
    return [Comparison(**asdict(c) | {"p_holm": p}) for c, p in zip(comparisons, adjusted, strict=True)]


def holm(ps: Sequence[float]) -> list[float]:
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        running = max(running, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = running
    return adjusted


def _aligned(every: Sequence[Predictions]) -> list[Predictions]:
    """All in the order of the first's examples."""
    wanted = every[0].ids
    aligned = []
    for predictions in every:
        place = {example: i for i, example in enumerate(predictions.ids)}
        if place.keys() != set(wanted):
            raise UserMistake(
                "arms were evaluated on different examples and cannot be compared: "
                f"{len(place.keys() ^ set(wanted))} examples are in one only; use the same data, n_test and sample_seed"
            )
        same_order = predictions.ids == wanted
        aligned.append(predictions if same_order else predictions.take([place[i] for i in wanted]))
    return aligned


def _resampled(columns: Sequence[np.ndarray], seed: int, samples: int) -> np.ndarray:
    """Sums of statistics on bootstrap samples, the same samples for all: [len(columns), samples, k]."""
    n, generator = len(columns[0]), np.random.default_rng(seed)
    sums = np.empty((len(columns), samples, columns[0].shape[1]))
    block = max(1, min(samples, LARGEST_BLOCK // n))
    for start in range(0, samples, block):
        size = min(block, samples - start)
        weights = np.stack([np.bincount(generator.integers(0, n, n), minlength=n) for _ in range(size)]).astype(float)
        for i, column in enumerate(columns):
            sums[i, start : start + size] = weights @ column
    return sums


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _variance(full: np.ndarray, resampled: np.ndarray, n: int) -> tuple[float, float]:
    """Variance of the mean over seeds, and its degrees of freedom.

    full [seeds], resampled [seeds, samples], over n examples. The bootstrap of the mean has the examples' part. Seeds
    differ by themselves and because each meets the examples in its own way; the bootstrap has the second already, so
    only what is left of the first is added. What the few seeds told has seeds − 1 degrees of freedom, and the sum
    has no fewer.
    """
    if n < 2:
        raise UserMistake(
            "the test set has one example, which tells nothing of others: give more (n_test, or the data)"
        )
    seeds = len(full)
    examples = float(resampled.mean(0).var(ddof=1))
    if seeds == 1:
        return examples, n - 1.0
    between = float(full.var(ddof=1))
    own_way = float((resampled - resampled.mean(0)).var(axis=1, ddof=1).mean()) * seeds / (seeds - 1)
    variance = examples + max(0.0, between - own_way) / seeds
    if variance == 0.0:
        return 0.0, n - 1.0
    shared = max(0.0, examples - own_way / seeds)
    freedom = variance**2 / ((between / seeds) ** 2 / (seeds - 1) + shared**2 / (n - 1) + 1e-300)
    return variance, min(max(freedom, seeds - 1.0), n - 1.0)


def _half_width(full: np.ndarray, resampled: np.ndarray, n: int) -> float:
    from scipy.stats import t

    variance, freedom = _variance(full, resampled, n)
    return float(t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)


def _p(full: np.ndarray, resampled: np.ndarray, n: int) -> float:
    from scipy.stats import t

    variance, freedom = _variance(full, resampled, n)
    if variance == 0.0:
        return 1.0 if full.mean() == 0 else 0.0
    return float(2 * t.sf(abs(full.mean()) / math.sqrt(variance), freedom))


def _randomization(metric: Metric, a: Sequence[np.ndarray], b: Sequence[np.ndarray], seed: int) -> float:
    """Swaps the two arms on a random half of the examples, in all seeds together."""
    generator, n = np.random.default_rng(seed + 1), len(a[0])
    observed = abs(_mean_difference(metric, [x.sum(0) for x in a], [y.sum(0) for y in b]))
    as_large, block = 0, max(1, min(SAMPLES, LARGEST_BLOCK // n))
    for start in range(0, SAMPLES, block):
        swap = generator.integers(0, 2, (min(block, SAMPLES - start), n)).astype(float)
        moved = [swap @ (y - x) for x, y in zip(a, b, strict=True)]
        differences = _mean_difference(
            metric,
            [x.sum(0) + m for x, m in zip(a, moved, strict=True)],
            [y.sum(0) - m for y, m in zip(b, moved, strict=True)],
        )
        as_large += int((np.abs(differences) >= observed - 1e-12).sum())
    return (as_large + 1) / (SAMPLES + 1)


def _mean_difference(metric: Metric, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> np.ndarray:
    """Sums of statistics per seed, each [..., k] → mean difference of the metric [...]."""
    return np.mean([metric.value(x) - metric.value(y) for x, y in zip(a, b, strict=True)], axis=0)
