"""Intervals and paired tests: what a difference between two arms is worth.

A result varies for three reasons: other test examples could have been drawn, another fine-tuning
seed (head, order, training sample) gives another network, and another pre-training seed another
encoder. Examples are resampled by a paired bootstrap. Seeds are random effects: pre-training and
fine-tuning seeds are crossed where every encoder was fine-tuned with the same seeds, else nested.
Their variance is added, and the interval is a t interval with Satterthwaite's degrees of freedom,
so that three lucky seeds are not evidence. Where there is one pre-training, nothing is known of
others: the finding is about this checkpoint.

tests/model/evaluation/test_significance.py simulates all three. Intervals cover 95%, and where
there is no difference 5% of the tests say there is one: 2 to 8% with three fine-tuning seeds or
3 × 3 seeds, depending on how much they vary; two seeds can tell less, up to 13%.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from beam_jobs.core.errors import UserError
from model.evaluation.metrics import BINS, Metric
from model.evaluation.predictions import Predictions

SAMPLES = 2000
"""Bootstrap samples, and permutations of the randomization test."""
LEVEL = 0.95
PROPORTIONS = ("accuracy", "exact_match")
LARGEST_BLOCK = 4_000_000
"""Weights (samples × examples) held at once, 32 MB."""
SeedPair = tuple[int | None, int]
"""Pre-training seed, None where there was one pre-training, and fine-tuning seed."""


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
    """Approximate randomization over examples, the seeds as they are (Noreen 1989); for accuracies
    of one seed it is McNemar's exact test, by sampling.
    """
    examples: int
    seeds: int
    """Fine-tunings of each arm."""
    p_holm: float | None = None
    """`p` corrected for the other comparisons of the same table."""
    pretraining_seeds: int = 1
    """Pre-trainings that the interval knows of."""

    @property
    def is_significant(self) -> bool:
        return (self.p if self.p_holm is None else self.p_holm) < 1 - LEVEL

    def describe(self, a: str, b: str, better: str) -> str:
        """Return the finding in words; `better` is "higher" or "lower"."""
        if not self.is_significant:
            return f"no evidence of a difference between {a} and {b}"
        return f"{a} is better than {b}" if self.is_a_better(better) else f"{b} is better than {a}"

    def is_a_better(self, better: str) -> bool:
        """Return whether arm a has the better value, with evidence or without."""
        return (self.difference > 0) == (better == "higher")

    def swap_arms(self) -> "Comparison":
        """Return arm b minus arm a."""
        return replace(self, difference=-self.difference, low=-self.high, high=-self.low)


def compute_interval(
    metric: Metric, predictions: Predictions, seed: int = 0, samples: int | None = None
) -> dict[str, float]:
    """Return the value and its percentile bootstrap interval over examples.

    Calibration errors and proportions of 0 or 1 have intervals of their own.
    """
    columns = metric.columns(predictions)
    sums, resampled = columns.sum(0), _resample_sums([columns], seed, samples or SAMPLES)[0]
    value, values = float(metric.value(sums)), metric.value(resampled)
    low, high = _compute_percentiles(values)
    if metric.name == "ece":
        half = _compute_half_width(np.array([[value]]), values[None, None], len(columns))
        low, high = _clip_interval(metric, value, half, _estimate_lift(sums, resampled))
    if metric.name in PROPORTIONS and value in (0.0, 1.0):
        low, high = _compute_exact_interval(value, len(columns))
    return {"value": value, "low": low, "high": high}


def pool_seeds(
    metric: Metric,
    predictions: Sequence[Predictions],
    seed_pairs: Sequence[SeedPair] | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Return the mean over the seeds with its interval over examples and seeds.

    `seed_pairs` are those of `predictions`; without them there was one pre-training.
    """
    if len(predictions) == 1:
        return compute_interval(metric, predictions[0], seed)
    columns = [metric.columns(p) for p in _align_examples(predictions)]
    sums, resampled = np.array([c.sum(0) for c in columns]), _resample_sums(columns, seed, SAMPLES)
    full = metric.value(sums)
    arranged = _arrange_seeds(full, seed_pairs)
    n, value = len(columns[0]), float(arranged.mean())
    half = _compute_half_width(arranged, _arrange_seeds(metric.value(resampled), seed_pairs), n)
    lift = (
        float(np.mean([_estimate_lift(*one) for one in zip(sums, resampled, strict=True)]))
        if metric.name == "ece"
        else 0.0
    )
    low, high = _clip_interval(metric, value, half, lift)
    if metric.name in PROPORTIONS and (full == full[0]).all() and value in (0.0, 1.0):
        low, high = _compute_exact_interval(value, n)
    return {"value": value, "low": low, "high": high}


def _clip_interval(metric: Metric, value: float, half: float, lift: float) -> tuple[float, float]:
    """Return the interval within the metric's bounds; noise alone may have added `lift`."""
    low, high = np.clip([value - lift - half, value + half], *metric.bounds)
    return float(low), float(high)


def _estimate_lift(sums: np.ndarray, resampled: np.ndarray) -> float:
    """Estimate how far noise lifts a calibration error, whose bins add up by absolute value.

    sums [BINS + 1], resampled [samples, BINS + 1]. A bin within two standard errors of zero is
    taken to have no error.
    """
    error, noise = sums[:BINS], resampled[:, :BINS] - sums[:BINS]
    shown = np.where(np.abs(error) > 2 * noise.std(0), error, 0.0)
    return float((np.abs(shown + noise).sum(1).mean() - np.abs(shown).sum()) / sums[BINS])


def _compute_exact_interval(value: float, n: int) -> tuple[float, float]:
    """Return Clopper and Pearson's interval (1934) for a share of n examples that is 0 or 1.

    A bootstrap of equal values has no width.
    """
    edge = ((1 - LEVEL) / 2) ** (1 / n)
    return (edge, 1.0) if value == 1.0 else (0.0, 1.0 - edge)


def compare_arms(
    metric: Metric,
    a: Sequence[Predictions],
    b: Sequence[Predictions],
    seed_pairs: Sequence[SeedPair] | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two arms; `a[i]` and `b[i]` are of the same seeds `seed_pairs[i]`.

    Without `seed_pairs` there was one pre-training.
    """
    if len(a) != len(b) or not a:
        raise UserError(
            f"arms of {len(a)} and {len(b)} seeds cannot be compared: give both the same seeds"
        )
    aligned = [metric.columns(p) for p in _align_examples([*a, *b])]
    columns_a, columns_b, n = aligned[: len(a)], aligned[len(a) :], len(aligned[0])
    values = np.array([metric.value(columns.sum(0)) for columns in aligned], dtype=float)
    full = _arrange_seeds(values[: len(a)] - values[len(a) :], seed_pairs)
    resampled = metric.value(_resample_sums(aligned, seed, SAMPLES))
    resampled = _arrange_seeds(resampled[: len(a)] - resampled[len(a) :], seed_pairs)
    difference = float(full.mean())
    p_randomization = _run_randomization_test(metric, columns_a, columns_b, seed_pairs, seed)
    if len(a) == 1:
        low, high, p = *_compute_percentiles(resampled[0, 0]), p_randomization
    else:
        half = _compute_half_width(full, resampled, n)
        widest = metric.bounds[1] - metric.bounds[0]
        low, high = (
            float(end) for end in np.clip([difference - half, difference + half], -widest, widest)
        )
        p = _compute_p(full, resampled, n)
    return Comparison(
        metric.name,
        difference,
        low,
        high,
        p,
        p_randomization,
        n,
        len(a),
        pretraining_seeds=len({pretraining for pretraining, _ in seed_pairs or [(None, 0)]}),
    )


def correct_comparisons(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Correct the p of each comparison for their number (Holm 1979)."""
    adjusted = adjust_p_values([c.p for c in comparisons])
    return [replace(c, p_holm=p) for c, p in zip(comparisons, adjusted, strict=True)]


def adjust_p_values(ps: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjustment of each p."""
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        running = max(running, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = running
    return adjusted


def _align_examples(arms: Sequence[Predictions]) -> list[Predictions]:
    """Return all predictions in the order of the first's examples. UserError where they differ."""
    wanted = arms[0].ids
    aligned = []
    for predictions in arms:
        place = {example: i for i, example in enumerate(predictions.ids)}
        if place.keys() != set(wanted):
            raise UserError(
                "arms were evaluated on different examples and cannot be compared: "
                f"{len(place.keys() ^ set(wanted))} examples are in one only; use the same data, "
                "n_test and sample_seed"
            )
        same_order = predictions.ids == wanted
        rows = [] if same_order else [place[i] for i in wanted]
        aligned.append(predictions if same_order else predictions.take_rows(rows))
    return aligned


def _arrange_seeds(values: np.ndarray, seed_pairs: Sequence[SeedPair] | None) -> np.ndarray:
    """Arrange values [fine-tunings, ...] by seed, [pre-trainings, fine-tunings of each, ...].

    Where pre-trainings have different fine-tuning seeds, the seeds are nested, and only the mean of
    each pre-training counts: [pre-trainings, 1, ...].
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


def _resample_sums(columns: Sequence[np.ndarray], seed: int, samples: int) -> np.ndarray:
    """Return sums of statistics on bootstrap samples, the same for all: [columns, samples, k]."""
    n, generator = len(columns[0]), np.random.default_rng(seed)
    sums = np.empty((len(columns), samples, columns[0].shape[1]))
    block = max(1, min(samples, LARGEST_BLOCK // n))
    for start in range(0, samples, block):
        size = min(block, samples - start)
        weights = np.stack(
            [np.bincount(generator.integers(0, n, n), minlength=n) for _ in range(size)]
        ).astype(float)
        for i, column in enumerate(columns):
            sums[i, start : start + size] = weights @ column
    return sums


def _compute_percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _compute_mean_squares(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean squares of pre-trainings, fine-tuning seeds and both together, each [...].

    values [pre-trainings, fine-tuning seeds, ...]. What has one level has mean square 0.
    """
    pretrainings, finetunings = values.shape[:2]
    none = np.zeros(values.shape[2:])
    rows, columns = values.mean(1), values.mean(0)
    of_rows = finetunings * rows.var(0, ddof=1) if pretrainings > 1 else none
    of_columns = pretrainings * columns.var(0, ddof=1) if finetunings > 1 else none
    if pretrainings == 1 or finetunings == 1:
        return of_rows, of_columns, none
    rest = values - rows[:, None] - columns[None] + values.mean((0, 1))
    return of_rows, of_columns, (rest**2).sum((0, 1)) / ((pretrainings - 1) * (finetunings - 1))


def _estimate_variance(full: np.ndarray, resampled: np.ndarray, n: int) -> tuple[float, float]:
    """Estimate the variance of the mean over seeds, and its degrees of freedom.

    full [pre-trainings, fine-tuning seeds], resampled [..., samples], over n examples. The
    bootstrap of the mean has the examples' part. Seeds differ by themselves and because each meets
    the examples in its own way; the bootstrap has the second already, so only the rest of the
    first is added. Mean squares P of pre-trainings, F of fine-tuning seeds and I of both give the
    seeds' part as P + F - I (two-way random effects); of few seeds that is too often nearly 0, so
    it counts at least P and at least F.

    Satterthwaite's degrees of freedom take the mean squares as uncertain, with the examples' noise
    in them. Two factors have the same noise, so each counts half of it.
    """
    if n < 2:
        raise UserError(
            "the test set has one example, which tells nothing of others: give more (n_test, or "
            "the data)"
        )
    examples = float(resampled.mean((0, 1)).var(ddof=1))
    levels = [size for size in full.shape if size > 1]
    if not levels:
        return examples, n - 1.0
    pretraining, finetuning, both = map(float, _compute_mean_squares(full))
    deviations = resampled - resampled.mean(-1, keepdims=True)
    noise = [float(s.sum()) / (deviations.shape[-1] - 1) for s in _compute_mean_squares(deviations)]
    own_way = (noise[0] + noise[1] - noise[2]) / full.size
    between = max(pretraining, finetuning, pretraining + finetuning - both) / full.size
    variance = examples + max(0.0, between - own_way)
    if variance == 0.0:
        return 0.0, n - 1.0
    twice = 1 - 1 / len(levels)
    known = max(0.0, examples - own_way) + twice * own_way
    uncertainty = known**2 / (n - 1) + 1e-300
    for square, known_square, size in zip(
        (pretraining, finetuning), noise, full.shape, strict=False
    ):
        rest = max(0.0, square - twice * known_square) / full.size
        uncertainty += rest**2 / max(size - 1, 1)
    return variance, min(max(variance**2 / uncertainty, min(levels) - 1.0), n - 1.0)


def _compute_half_width(full: np.ndarray, resampled: np.ndarray, n: int) -> float:
    """Return half the width of the t interval; the arguments are those of `_estimate_variance`."""
    from scipy.stats import t

    variance, freedom = _estimate_variance(full, resampled, n)
    return float(t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)


def _compute_p(full: np.ndarray, resampled: np.ndarray, n: int) -> float:
    """Return the two-sided p of no difference; the arguments are those of `_estimate_variance`."""
    from scipy.stats import t

    variance, freedom = _estimate_variance(full, resampled, n)
    if variance == 0.0:
        return 1.0 if full.mean() == 0 else 0.0
    return float(2 * t.sf(abs(full.mean()) / math.sqrt(variance), freedom))


def _run_randomization_test(
    metric: Metric,
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    seed_pairs: Sequence[SeedPair] | None,
    seed: int,
) -> float:
    """Return the p of swapping the arms on a random half of the examples, in all seeds together."""

    def measure_difference(sums_a: list[np.ndarray], sums_b: list[np.ndarray]) -> np.ndarray:
        values = [metric.value(x) - metric.value(y) for x, y in zip(sums_a, sums_b, strict=True)]
        return np.abs(_arrange_seeds(np.array(values), seed_pairs).mean((0, 1)))

    generator, n = np.random.default_rng(seed + 1), len(a[0])
    observed = measure_difference([x.sum(0) for x in a], [y.sum(0) for y in b])
    as_large, block = 0, max(1, min(SAMPLES, LARGEST_BLOCK // n))
    for start in range(0, SAMPLES, block):
        swap = generator.integers(0, 2, (min(block, SAMPLES - start), n)).astype(float)
        moved = [swap @ (y - x) for x, y in zip(a, b, strict=True)]
        swapped_a = [x.sum(0) + m for x, m in zip(a, moved, strict=True)]
        swapped_b = [y.sum(0) - m for y, m in zip(b, moved, strict=True)]
        as_large += int((measure_difference(swapped_a, swapped_b) >= observed - 1e-12).sum())
    return (as_large + 1) / (SAMPLES + 1)
