"""Intervals and paired tests of the difference between two arms. Examples are resampled by a paired
bootstrap; seeds of fine-tuning and pre-training are random effects, crossed or nested, whose
variances are added (docs/results.md; simulated studies in tests/model/evaluation).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.model.evaluation.metrics import BINS, METRICS, Metric
from amazon_electra.model.evaluation.predictions import Predictions

SAMPLES = 2000
"""Bootstrap samples, and permutations of the randomization test."""
LEVEL = 0.95
PROPORTIONS = ("accuracy", "exact_match", "subset_accuracy", "within_one")
QUANTILES = 22
"""Logit of the outermost quantiles of chi-squared: 3e-10 are left out on either side."""
MAX_BLOCK = 100_000
"""Weights (samples × examples) held at once: 0.8 MB stay in a core's cache, twice as fast."""
SeedPair = tuple[int | None, int]
"""Pre-training seed, None where there was one pre-training, and fine-tuning seed."""


@dataclass(frozen=True)
class Spread:
    """The variance of a mean over seeds, or of a difference of two: what is known of it."""

    known: float
    """Variance over examples, by the bootstrap."""
    between: float
    """Variance between seeds, with the interaction of seed and example."""
    least: float
    """Variance of that interaction alone, by the bootstrap; a lower bound of `between`."""
    freedom: float
    """Degrees of freedom of `between`."""


@dataclass(frozen=True)
class Comparison:
    """Arm a minus arm b on the same examples; seeds are paired."""

    metric: str
    difference: float
    low: float
    high: float
    p: float
    """Two-sided, seeds included where there are several. Of one seed that of an approximate
    randomization over examples (Noreen 1989), for accuracies McNemar's exact test by sampling.
    """
    examples: int
    seeds: int
    """Fine-tunings of each arm."""
    p_holm: float | None = None
    """`p` corrected for the other comparisons of the same table."""
    pretraining_seeds: int = 1
    """Pre-trainings that the interval knows of."""
    spread: Spread | None = None
    """None where each arm has one fine-tuning."""

    @property
    def is_significant(self) -> bool:
        return (self.p if self.p_holm is None else self.p_holm) < 1 - LEVEL

    @property
    def is_a_better(self) -> bool:
        """Whether arm a has the better value, with evidence or without."""
        return (self.difference > 0) == (METRICS[self.metric].better == "higher")

    def swap_arms(self) -> "Comparison":
        """Return arm b minus arm a."""
        return replace(self, difference=-self.difference, low=-self.high, high=-self.low)


def compute_interval(metric: Metric, predictions: Predictions, seed: int = 0) -> dict[str, float]:
    """Return the value and its interval over examples: percentile bootstrap, or exact at 0, 1."""
    columns = metric.columns(predictions)
    sums, resampled = columns.sum(0), _resample_sums([columns], seed)[0]
    value, values = float(metric.value(sums)), metric.value(resampled)
    low, high = _compute_percentiles(values)
    if metric.name == "ece":
        half = NormalDist().inv_cdf((1 + LEVEL) / 2) * float(values.std(ddof=1))
        low, high = _clip_interval(metric, value, half, sums[None], resampled[None])
    if metric.name in PROPORTIONS and value in (0.0, 1.0):
        low, high = compute_exact_interval(round(value * len(columns)), len(columns))
    return {"value": value, "low": low, "high": high}


def pool_seeds(
    metric: Metric,
    predictions: Sequence[Predictions],
    seed_pairs: Sequence[SeedPair] | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Return the mean over seeds with its interval; without `seed_pairs` of one pre-training."""
    if len(predictions) == 1:
        return compute_interval(metric, predictions[0], seed)
    columns = [metric.columns(p) for p in _align_examples(predictions)]
    sums, resampled = np.array([c.sum(0) for c in columns]), _resample_sums(columns, seed)
    full = metric.value(sums)
    arranged = _arrange_seeds(full, seed_pairs)
    n, value = len(columns[0]), float(arranged.mean())
    spread = _estimate_spread(arranged, _arrange_seeds(metric.value(resampled), seed_pairs), n)
    low, high = _clip_interval(metric, value, _compute_half_width(spread), sums, resampled)
    if metric.name in PROPORTIONS and (full == full[0]).all() and value in (0.0, 1.0):
        low, high = compute_exact_interval(round(value * n), n)
    return {"value": value, "low": low, "high": high}


def _clip_interval(
    metric: Metric, value: float, half: float, sums: np.ndarray, resampled: np.ndarray
) -> tuple[float, float]:
    """Return the interval within the metric's bounds. Of a calibration error it begins lower, by
    how far noise lifts it; sums [seeds, BINS + 1], resampled [seeds, samples, BINS + 1].
    """
    lift = 0.0
    if metric.name == "ece":
        # a bin within two standard errors of zero is taken to have no error
        error, noise = sums[:, None, :BINS], resampled[..., :BINS] - sums[:, None, :BINS]
        shown = np.where(np.abs(error) > 2 * noise.std(1, keepdims=True), error, 0.0)
        lifted = np.abs(shown + noise).sum(2).mean(1) - np.abs(shown).sum(2)[:, 0]
        lift = float((lifted / sums[:, BINS]).mean())
    low, high = np.clip([value - lift - half, value + half], *metric.bounds)
    return float(low), float(high)


def compute_exact_interval(found: int, n: int) -> tuple[float, float]:
    """Return Clopper and Pearson's interval (1934) for a share, `found` of `n`."""
    from scipy.stats import beta  # takes a second to load

    if not n:
        return 0.0, 1.0
    tail = (1 - LEVEL) / 2
    low = float(beta.ppf(tail, found, n - found + 1)) if found else 0.0
    high = float(beta.ppf(1 - tail, found + 1, n - found)) if found < n else 1.0
    return low, high


def compare_arms(
    metric: Metric,
    a: Sequence[Predictions],
    b: Sequence[Predictions],
    seed_pairs: Sequence[SeedPair] | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two arms; `a[i]` and `b[i]` are of the seeds `seed_pairs[i]`, or one pre-training."""
    require(len(a) == len(b) and a, f"arms of {len(a)} and {len(b)} seeds")
    aligned = [metric.columns(p) for p in _align_examples([*a, *b])]
    n = len(aligned[0])
    values = np.array([metric.value(columns.sum(0)) for columns in aligned], dtype=float)
    full = _arrange_seeds(values[: len(a)] - values[len(a) :], seed_pairs)
    resampled = metric.value(_resample_sums(aligned, seed))
    resampled = _arrange_seeds(resampled[: len(a)] - resampled[len(a) :], seed_pairs)
    difference = float(full.mean())
    if len(a) > 1:
        spread = _estimate_spread(full, resampled, n)
        low, high, p = _judge(metric, difference, spread)
    else:
        spread, (low, high) = None, _compute_percentiles(resampled[0, 0])
        p = _run_randomization_test(metric, aligned[0], aligned[1], seed)
    pretrainings = len({pretraining for pretraining, _ in seed_pairs or [(None, 0)]})
    given = metric.name, difference, low, high, p, n, len(a)
    return Comparison(*given, pretraining_seeds=pretrainings, spread=spread)


def correct_comparisons(
    comparisons: Sequence[Comparison], independent: int | None = None
) -> list[Comparison]:
    """Let the comparisons of a study share what they know of seeds, then correct each p for their
    number (Holm 1979). `independent` says how many share no arm on a task; by default all.
    """
    known = [c.spread for c in comparisons if c.spread and c.spread.least > 0]
    pooled, judged = iter(_pool_spreads(known, independent)), []
    for c in comparisons:
        if c.spread and c.spread.least > 0:
            spread = next(pooled)
            low, high, p = _judge(METRICS[c.metric], c.difference, spread)
            c = replace(c, low=low, high=high, p=p, spread=spread)
        judged.append(c)
    adjusted = adjust_p_values([c.p for c in judged])
    return [replace(c, p_holm=p) for c, p in zip(judged, adjusted, strict=True)]


def adjust_p_values(ps: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjustment of each p."""
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        running = max(running, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = running
    return adjusted


def _align_examples(arms: Sequence[Predictions]) -> list[Predictions]:
    """Return all predictions in the order of the first's examples. UserError where they differ."""
    wanted, aligned = arms[0].ids, []
    for predictions in arms:
        place = {example: i for i, example in enumerate(predictions.ids)}
        others = len(place.keys() ^ set(wanted))
        require(not others, f"{others} examples are of one arm alone: use the same data and n_test")
        if predictions.ids != wanted:
            predictions = predictions.take_rows([place[i] for i in wanted])
        aligned.append(predictions)
    return aligned


def _arrange_seeds(values: np.ndarray, seed_pairs: Sequence[SeedPair] | None) -> np.ndarray:
    """Arrange values [fine-tunings, ...] by seed, [pre-trainings, fine-tunings of each, ...]. Where
    pre-trainings have different fine-tuning seeds, only the mean of each counts.
    """
    if seed_pairs is None:
        return values[None]
    rows: dict[int | None, dict[int, int]] = {}
    for i, (pretraining, finetuning) in enumerate(seed_pairs):
        rows.setdefault(pretraining, {})[finetuning] = i
    seeds = sorted(next(iter(rows.values())))
    if all(sorted(row) == seeds for row in rows.values()):
        return np.stack([values[[row[seed] for seed in seeds]] for row in rows.values()])
    return np.stack([values[list(row.values())].mean(0, keepdims=True) for row in rows.values()])


def _resample_sums(columns: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """Return sums of statistics on bootstrap samples, the same for all: [columns, samples, k]."""
    n, generator = len(columns[0]), np.random.default_rng(seed)
    sums = np.empty((len(columns), SAMPLES, columns[0].shape[1]))
    block = max(1, min(SAMPLES, MAX_BLOCK // n))
    for start in range(0, SAMPLES, block):
        size = min(block, SAMPLES - start)
        drawn = generator.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(float)
        for i, column in enumerate(columns):
            sums[i, start : start + size] = weights @ column
    return sums


def _compute_percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _compute_mean_squares(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean squares of values [pre-trainings, fine-tunings, ...]: rows, columns, the rest."""
    pretrainings, finetunings = values.shape[:2]
    none = np.zeros(values.shape[2:])
    rows, columns = values.mean(1), values.mean(0)
    of_rows = finetunings * rows.var(0, ddof=1) if pretrainings > 1 else none
    of_columns = pretrainings * columns.var(0, ddof=1) if finetunings > 1 else none
    if pretrainings == 1 or finetunings == 1:
        return of_rows, of_columns, none
    rest = values - rows[:, None] - columns[None] + values.mean((0, 1))
    return of_rows, of_columns, (rest**2).sum((0, 1)) / ((pretrainings - 1) * (finetunings - 1))


def _estimate_spread(full: np.ndarray, resampled: np.ndarray, n: int) -> Spread:
    """Estimate the variance of the mean over seeds. full [pre-trainings, fine-tuning seeds],
    resampled [..., samples], over n examples. Mean squares P of pre-trainings, F of fine-tuning
    seeds and I of both give it as P + F - I (two-way random effects); of few seeds that is too
    often nearly 0, so it counts at least P and at least F. Degrees of freedom are Satterthwaite's
    (1946), at least those of the fewest levels, at most those of P and F together.
    """
    require(n >= 2, "one test example says nothing of others: raise n_test")
    examples = float(resampled.mean((0, 1)).var(ddof=1))
    pretraining, finetuning, both = map(float, _compute_mean_squares(full))
    deviations = resampled - resampled.mean(-1, keepdims=True)
    noise = [float(s.sum()) / (deviations.shape[-1] - 1) for s in _compute_mean_squares(deviations)]
    own_way = (noise[0] + noise[1] - noise[2]) / full.size
    between, freedom = combine_mean_squares(pretraining, finetuning, both, full.shape)
    known, least = max(0.0, examples - own_way), max(0.0, own_way)
    return Spread(known, between / full.size, least, freedom)


def combine_mean_squares(
    pretraining: float, finetuning: float, both: float, levels: Sequence[int]
) -> tuple[float, float]:
    """Return the variance of one fine-tuning and its degrees of freedom; one level may be 1."""
    between = max(pretraining, finetuning, pretraining + finetuning - both)
    one, other = (size - 1.0 for size in levels)
    if not one or not other:
        return between, one + other
    if not between:
        return between, min(one, other)
    uncertain = pretraining**2 / one + finetuning**2 / other + both**2 / (one * other)
    return between, float(np.clip(between**2 / uncertain, min(one, other), one + other))


def _pool_spreads(spreads: Sequence[Spread], independent: int | None = None) -> list[Spread]:
    """Return each spread with a variance between seeds that leans towards that of all (Smyth 2004,
    section 6.2). Logarithms vary by trigamma(freedom / 2) because few seeds were drawn, and by the
    rest because variances differ. What was measured counts one standard error larger, 2 /
    sqrt(`independent`). Together they know at most all degrees of freedom.
    """
    from scipy.special import digamma, polygamma

    if len(spreads) < 2:
        return list(spreads)
    count = min(independent or len(spreads), len(spreads))
    between = np.array([max(s.between, s.least / 20) for s in spreads])
    freedom = np.array([s.freedom for s in spreads])
    logarithms = np.log(between) - digamma(freedom / 2) + np.log(freedom / 2)
    measured = logarithms.var(ddof=1) * (1 + 2 / math.sqrt(count))
    prior = 2 * _invert_trigamma(measured - polygamma(1, freedom / 2).mean())
    variance = math.exp(logarithms.mean() + digamma(prior / 2) - math.log(prior / 2))
    most, pooled = float(freedom.mean()) * count, []
    for s in spreads:
        weighted = (prior * variance + s.freedom * s.between) / (prior + s.freedom)
        known = max(s.freedom, min(prior + s.freedom, most))
        pooled.append(replace(s, between=weighted, freedom=known))
    return pooled


def _invert_trigamma(value: float) -> float:
    """Return where trigamma is `value`, 1e6 at most, by Newton's method on its inverse."""
    from scipy.special import polygamma

    if value < 1e-6:
        return 1e6
    x = 0.5 + 1 / value
    for _ in range(20):
        trigamma = polygamma(1, x)
        x += float(trigamma * (1 - trigamma / value) / polygamma(2, x))
    return x


def _judge(metric: Metric, difference: float, spread: Spread) -> tuple[float, float, float]:
    """Return the ends of the interval of a difference, and its p."""
    half, widest = _compute_half_width(spread), metric.bounds[1] - metric.bounds[0]
    low, high = np.clip([difference - half, difference + half], -widest, widest)
    return float(low), float(high), float(_compute_p(difference, spread))


def _compute_p(difference: Any, spread: Spread) -> Any:
    """Return the two-sided p of no difference: the mean of the normal distribution's p over what
    the variance between seeds may be, its estimate times freedom / chi-squared, on a grid dense in
    both tails.
    """
    from scipy.special import erfc, gammaincinv

    logit = np.linspace(-QUANTILES, QUANTILES, 10 * QUANTILES + 1)
    quantile = 1 / (1 + np.exp(-logit))
    weights = quantile * (1 - quantile)
    ratio = gammaincinv(spread.freedom / 2, quantile) / (spread.freedom / 2)
    known, between, least, distance = (
        np.asarray(one, dtype=float)[..., None]
        for one in (spread.known, spread.between, spread.least, np.abs(difference))
    )
    variance = known + np.maximum(between / ratio, least)
    p = (erfc(distance / np.sqrt(2 * variance + 1e-300)) * weights).sum(-1) / weights.sum()
    return np.where(np.asarray(difference) == 0, 1.0, p)


def _compute_half_width(spread: Spread) -> float:
    """Return half the width of the interval: the difference whose p is 1 - LEVEL."""
    from scipy.optimize import brentq

    deviation = math.sqrt(spread.known + max(spread.between, spread.least))
    if deviation == 0.0:
        return 0.0
    ends = deviation / 10, 50 * deviation  # of Student's t with one degree the quantile is 12.7
    return float(brentq(lambda half: _compute_p(half, spread) - (1 - LEVEL), *ends))


def _run_randomization_test(metric: Metric, a: np.ndarray, b: np.ndarray, seed: int) -> float:
    """Return the p of swapping arms on a random half of the examples; columns [examples, k]."""

    def measure_difference(moved: np.ndarray) -> np.ndarray:
        return np.abs(metric.value(a.sum(0) + moved) - metric.value(b.sum(0) - moved))

    generator, n = np.random.default_rng(seed + 1), len(a)
    observed = measure_difference(np.zeros(a.shape[1]))
    as_large, block = 0, max(1, min(SAMPLES, MAX_BLOCK // n))
    for start in range(0, SAMPLES, block):
        swap = generator.integers(0, 2, (min(block, SAMPLES - start), n)).astype(float)
        as_large += int((measure_difference(swap @ (b - a)) >= observed - 1e-12).sum())
    return (as_large + 1) / (SAMPLES + 1)
