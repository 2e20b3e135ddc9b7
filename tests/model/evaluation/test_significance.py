"""Simulated studies: intervals cover what they should, and tests find nothing where there is
nothing.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from beam_jobs.job.errors import UserError
from model.evaluation import significance
from model.evaluation.metrics import METRICS
from model.evaluation.predictions import Predictions
from model.report.results import _repeat_over_pretrainings

EXAMPLES = 200
STUDIES = 200
GRID = [(pretraining, finetuning) for pretraining in range(3) for finetuning in range(3)]
"""Three pre-trainings, each fine-tuned with the same three seeds."""


@pytest.fixture(autouse=True)
def fewer_samples(monkeypatch):
    """Simulations run hundreds of studies; 250 samples each are enough for a rate."""
    monkeypatch.setattr(significance, "SAMPLES", 250)


def predictions(right: np.ndarray) -> Predictions:
    labels = np.arange(len(right)) % 2
    said = np.where(right, labels, 1 - labels)
    return Predictions(
        [str(i) for i in range(len(right))],
        labels.tolist(),
        said.tolist(),
        np.zeros(len(right)),
        None,
        2,
    )


def arm(generator, difficulty, seeds, spread, effect=0.0) -> list[Predictions]:
    """Examples differ in difficulty, seeds by `spread` as a whole and on every example by chance
    (logits).
    """
    return [
        predictions(
            difficulty
            + effect
            + generator.normal(0, spread)
            + generator.normal(0, 1.0, len(difficulty))
            > 0
        )
        for _ in range(seeds)
    ]


def study(number: int, seeds: int, spread: float, effect: float = 0.0):
    """Both arms meet the same examples."""
    generator = np.random.default_rng([7, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    return arm(generator, difficulty, seeds, spread, effect), arm(
        generator, difficulty, seeds, spread
    )


def pretrained_arm(generator, difficulty, spread, finetuning, effect=0.0) -> list[Predictions]:
    """Encoders differ by `spread` as a whole and by 0.3 on every example; `finetuning` [3, 3] is
    what each fine-tuning adds.
    """
    return [
        predictions(
            difficulty + effect + encoder + more + generator.normal(0, 1.0, len(difficulty)) > 0
        )
        for row in finetuning
        for encoder in [generator.normal(0, spread) + generator.normal(0, 0.3, len(difficulty))]
        for more in row
    ]


def pretrained_study(number: int, spread: float, crossed: bool, effect: float = 0.0):
    """Fine-tuning seeds vary by 0.1: by seed alike for every encoder, or anew for each."""
    generator = np.random.default_rng([11, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    arms = []
    for gain in (effect, 0.0):
        finetuning = generator.normal(0, 0.1, (1 if crossed else 3, 3)) + np.zeros((3, 3))
        arms.append(pretrained_arm(generator, difficulty, spread, finetuning, gain))
    return arms


def seedless_study(number: int, spread: float, crossed: bool):
    """The first arm is pre-trained; the second is of random encoders, one for each of three
    fine-tunings, which are compared with every pre-training: the report repeats them. All encoders
    differ alike, so that the arms do not.
    """
    generator = np.random.default_rng([13, number])
    difficulty = generator.normal(0.8, 1.0, EXAMPLES)
    seeds = generator.normal(0, 0.1, (1, 3))
    finetuning = [seeds if crossed else generator.normal(0, 0.1, (1, 3)) for _ in range(4)]
    trained = pretrained_arm(generator, difficulty, spread, np.concatenate(finetuning[:3]))
    random = pretrained_arm(generator, difficulty, spread, finetuning[3].T)
    known = dict(zip(GRID, trained, strict=True))
    repeated = _repeat_over_pretrainings(
        {(None, seed): one for seed, one in enumerate(random)}, known
    )
    return trained, [repeated[pair] for pair in GRID]


@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), (3, 0.0), (3, 0.3), (5, 0.3)])
@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_where_there_is_no_difference_one_in_twenty_is_called_one(metric, seeds, spread):
    found = [
        significance.compare_arms(METRICS[metric], *study(i, seeds, spread), seed=i)
        for i in range(STUDIES)
    ]
    wrong = sum(c.p < 0.05 for c in found) / STUDIES
    covered = sum(c.low <= 0 <= c.high for c in found) / STUDIES
    assert 0.02 <= wrong <= 0.08
    assert 0.9 <= covered <= 0.98, "250 samples cost a percentile interval one or two percent"


@pytest.mark.parametrize(
    ("spread", "crossed"), [(0.1, False), (0.1, True), (0.2, False), (0.2, True)]
)
def test_three_pretrainings_of_three_finetunings_cover_what_they_should(
    spread, crossed, monkeypatch
):
    """One pre-training knows nothing of others: it has two to six times the false positives."""
    monkeypatch.setattr(significance, "_run_randomization_test", lambda *arguments: 1.0)
    accuracy = METRICS["accuracy"]
    wrong = covered = of_one = 0
    for i in range(2 * STUDIES):
        a, b = pretrained_study(i, spread, crossed)
        found = significance.compare_arms(accuracy, a, b, GRID, seed=i)
        assert (found.pretraining_seeds, found.seeds) == (3, 9)
        wrong += found.p < 0.05
        covered += found.low <= 0 <= found.high
        of_one += significance.compare_arms(accuracy, a[:3], b[:3], seed=i).p < 0.05
    assert 0.03 <= wrong / (2 * STUDIES) <= 0.07
    assert 0.93 <= covered / (2 * STUDIES) <= 0.97
    assert of_one > 2 * wrong or of_one > 0.09 * 2 * STUDIES


@pytest.mark.parametrize(
    ("spread", "crossed"), [(0.1, False), (0.1, True), (0.2, False), (0.2, True)]
)
def test_random_encoders_repeated_over_pretrainings_are_not_taken_for_more(
    spread, crossed, monkeypatch
):
    monkeypatch.setattr(significance, "_run_randomization_test", lambda *arguments: 1.0)
    wrong = covered = 0
    for i in range(2 * STUDIES):
        a, b = seedless_study(i, spread, crossed)
        found = significance.compare_arms(METRICS["accuracy"], a, b, GRID, seed=i)
        wrong += found.p < 0.05
        covered += found.low <= 0 <= found.high
    assert 0.03 <= wrong / (2 * STUDIES) <= 0.07
    assert 0.93 <= covered / (2 * STUDIES) <= 0.97


def test_the_interval_of_a_pretrained_arm_covers_its_true_accuracy():
    """The truth is over all examples, pre-trainings and fine-tunings, by a large simulation."""
    noise = np.sqrt(1 + 1 + 0.3**2 + 0.15**2 + 0.1**2)
    truth = np.mean(np.random.default_rng(0).normal(0.8, noise, 1_000_000) > 0)
    covered = 0
    for i in range(STUDIES):
        arm, _ = pretrained_study(i, 0.15, crossed=False)
        pooled = significance.pool_seeds(METRICS["accuracy"], arm, GRID, seed=i)
        covered += pooled["low"] <= truth <= pooled["high"]
    assert 0.93 <= covered / STUDIES <= 0.975


def test_a_large_difference_is_found_over_pretrainings():
    found = [
        significance.compare_arms(METRICS["accuracy"], *pretrained_study(i, 0.1, True, 0.9), GRID)
        for i in range(20)
    ]
    assert sum(c.p < 0.05 and c.low > 0 for c in found) >= 18


def test_the_order_of_cells_does_not_matter():
    a, b = pretrained_study(0, 0.2, True)
    order = np.random.default_rng(0).permutation(9)
    shuffled = [[arm[i] for i in order] for arm in (a, b)]
    compare = significance.compare_arms
    first = compare(METRICS["accuracy"], a, b, GRID)
    again = compare(METRICS["accuracy"], *shuffled, [GRID[i] for i in order])
    assert (again.difference, again.low, again.high, again.p) == pytest.approx(
        (first.difference, first.low, first.high, first.p)
    )


def test_nested_seeds_count_as_the_mean_of_each_pretraining():
    """Two fine-tunings of one encoder tell no more of encoders than their mean does."""
    values = np.array([[1.0, 3.0, 5.0, 5.0, 0.0]])
    pairs = [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)]
    assert significance._arrange_seeds(values[0], pairs).tolist() == [[2.0], [5.0], [0.0]]
    crossed = significance._arrange_seeds(values[0][:4], [(1, 7), (0, 7), (1, 8), (0, 8)])
    assert crossed.tolist() == [[1.0, 5.0], [3.0, 5.0]]


def test_the_variance_of_a_grid_is_that_of_its_mean_squares():
    """By hand: rows 1 and 3, columns 1 and 3, no interaction, and examples of no weight."""
    grid = np.array([[0.0, 2.0], [2.0, 4.0]])
    variance, freedom = significance._estimate_variance(grid, np.zeros((2, 2, 10)), 100)
    assert variance == pytest.approx((4.0 + 4.0) / 4)
    assert freedom == pytest.approx(2.0)
    alone, _ = significance._estimate_variance(grid[:, :1], np.zeros((2, 1, 10)), 100)
    assert alone == pytest.approx(2.0 / 2)


def test_mean_squares_are_those_of_an_analysis_of_variance():
    """Written out: sums of squares of rows, columns and what is left, over their freedom."""
    grid = np.random.default_rng(0).normal(size=(3, 4))
    mean = grid.mean()
    rows = sum(4 * (grid[i].mean() - mean) ** 2 for i in range(3)) / 2
    columns = sum(3 * (grid[:, j].mean() - mean) ** 2 for j in range(4)) / 3
    rest = sum(
        (grid[i, j] - grid[i].mean() - grid[:, j].mean() + mean) ** 2
        for i in range(3)
        for j in range(4)
    ) / (2 * 3)
    assert significance._compute_mean_squares(grid) == pytest.approx((rows, columns, rest))
    assert significance._compute_mean_squares(grid[:1]) == (
        0,
        pytest.approx(grid[0].var(ddof=1)),
        0,
    )
    assert significance._compute_mean_squares(grid[:, :1]) == (
        pytest.approx(grid[:, 0].var(ddof=1)),
        0,
        0,
    )


def test_the_freedom_of_a_grid_is_satterthwaites():
    """By hand: rows and columns -1, 0, 1, so P = F = 3 and I = 0, over 9 cells. The bootstrap moves
    all cells by 1 (the examples' part) and the rows by -1, 0, 1 (their own way: 3 / 9).
    """
    steps = np.array([-1.0, 0.0, 1.0])
    grid = steps[:, None] + steps
    number = np.arange(10_000)
    together, own = 1.0 - 2 * (number % 2), 1.0 - 2 * (number // 2 % 2)
    resampled = together + steps[:, None, None] * own + np.zeros((3, 3, 1))
    variance, freedom = significance._estimate_variance(grid, resampled, 100)
    assert variance == pytest.approx(1 + 6 / 9 - 3 / 9, rel=1e-3)
    known = 1 - 3 / 9 + 0.5 * 3 / 9
    rows, columns = (3 - 0.5 * 3) / 9, 3 / 9
    uncertainty = known**2 / 99 + rows**2 / 2 + columns**2 / 2
    assert freedom == pytest.approx((4 / 3) ** 2 / uncertainty, rel=1e-3)
    smaller = significance._estimate_variance(grid / 100, resampled / 100, 100)
    assert smaller == pytest.approx((variance / 100**2, freedom)), "whatever the unit"


def test_one_seed_has_the_freedom_of_its_examples():
    moved = np.random.default_rng(0).normal(size=(1, 1, 50))
    variance, freedom = significance._estimate_variance(np.zeros((1, 1)), moved, 30)
    assert (variance, freedom) == (pytest.approx(moved.var(ddof=1)), 29.0)
    opposed = np.concatenate([moved, -moved], axis=1)
    assert significance._estimate_variance(np.zeros((1, 2)), opposed, 30) == (0.0, 29.0)


@pytest.mark.parametrize(("seeds", "rate"), [(2, 0.13), (3, 0.08), (5, 0.06)])
def test_at_worst_few_seeds_call_so_many_a_difference(seeds, rate):
    """The variance of seeds is 25 times that of examples; more or less of it gives fewer."""
    generator, wrong, studies = np.random.default_rng(0), 0, 4000
    for _ in range(studies):
        full = generator.normal(0, 1) + generator.normal(0, 5, (1, seeds))
        resampled = np.tile(generator.normal(0, 1, 250), (1, seeds, 1))
        wrong += significance._compute_p(full, resampled, EXAMPLES) < 0.05
    assert wrong / studies == pytest.approx(rate, abs=0.015)


def test_ignoring_that_seeds_vary_would_cry_wolf():
    """Why p is not the randomization test's where there are several seeds."""
    found = [
        significance.compare_arms(METRICS["accuracy"], *study(i, 3, 0.3), seed=i)
        for i in range(STUDIES)
    ]
    assert sum(c.p_randomization < 0.05 for c in found) > 0.15 * STUDIES


def test_the_interval_covers_the_true_accuracy_of_an_arm():
    """The truth is over all examples and all seeds, by a large simulation."""
    generator = np.random.default_rng(0)
    truth = np.mean(generator.normal(0.8, np.sqrt(1 + 1 + 0.2**2), 1_000_000) > 0)
    covered = 0
    for i in range(STUDIES):
        pooled = significance.pool_seeds(METRICS["accuracy"], study(i, 4, 0.2)[0], seed=i)
        covered += pooled["low"] <= truth <= pooled["high"]
    assert 0.92 <= covered / STUDIES <= 0.98


def calibrated(number: int, n: int, off: float = 0.0) -> Predictions:
    """Right as often as the confidence says, less `off`."""
    generator = np.random.default_rng([5, number])
    confidence = np.clip(generator.beta(5, 1, n), 0.5, 1.0)
    right = generator.random(n) < confidence - off
    return replace(predictions(right), probabilities=np.stack([confidence, 1 - confidence], axis=1))


@pytest.mark.parametrize(
    ("n", "off"), [(200, 0.0), (600, 0.0), (2000, 0.0), (200, 0.1), (600, 0.1), (600, 0.02)]
)
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_interval_of_a_calibration_error_covers_the_truth_and_the_value(n, off, seeds):
    ece, covered, widths = METRICS["ece"], 0, []
    truth = ece.compute(calibrated(0, 400_000, off)) if off else 0.0
    for i in range(STUDIES // 2):
        found = significance.pool_seeds(
            ece, [calibrated(1 + seeds * i + k, n, off) for k in range(seeds)], seed=i
        )
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
        covered += found["low"] <= truth <= found["high"]
        widths.append(found["high"] - found["low"])
    assert covered >= 0.91 * (STUDIES // 2)
    assert np.mean(widths) < 3 / np.sqrt(n), "about four standard deviations of a share"


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_hundred_percent_of_few_examples_is_not_certain(seeds):
    found = significance.pool_seeds(
        METRICS["accuracy"], [predictions(np.ones(50, dtype=bool))] * seeds
    )
    assert (found["value"], found["high"]) == (1.0, 1.0)
    assert found["low"] == pytest.approx(binomtest(50, 50).proportion_ci().low)
    none = significance.pool_seeds(
        METRICS["accuracy"], [predictions(np.zeros(50, dtype=bool))] * seeds
    )
    assert (none["low"], none["high"]) == (
        0.0,
        pytest.approx(binomtest(0, 50).proportion_ci().high),
    )


def test_arms_the_other_way_round_give_the_same_finding():
    a, b = study(4, 3, 0.2, effect=0.3)
    found = significance.compare_arms(METRICS["accuracy"], a, b)
    back = significance.compare_arms(METRICS["accuracy"], b, a)
    assert 0 < abs(found.difference) < 1
    assert (back.difference, back.low, back.high) == pytest.approx(
        (-found.difference, -found.high, -found.low)
    )
    assert (back.p, back.p_randomization) == pytest.approx((found.p, found.p_randomization))
    swapped = found.swap_arms()
    assert (swapped.difference, swapped.low, swapped.high, swapped.p) == pytest.approx(
        (back.difference, back.low, back.high, back.p)
    )


def test_an_interval_lies_around_its_value_as_far_as_the_metric_goes():
    arm = study(1, 3, 0.1)[0]
    found = significance.pool_seeds(METRICS["accuracy"], arm)
    accuracies = [METRICS["accuracy"].compute(one) for one in arm]
    assert found["value"] == pytest.approx(np.mean(accuracies))
    assert found["low"] + found["high"] == pytest.approx(2 * found["value"])
    right = np.ones(100, dtype=bool)
    almost = [predictions(right & (np.arange(100) != i)) for i in range(3)]
    near = significance.pool_seeds(METRICS["accuracy"], almost)
    assert near["low"] < 0.99 < near["high"] == 1.0


def test_noise_lifts_a_bin_without_error_and_hardly_one_with():
    """Two bins of 10 examples: the first wavers around 0, the second around 8, by 1 each."""
    sums, resampled = np.zeros(16), np.zeros((1000, 16))
    sums[[0, 1, 15]] = 0.5, 8.0, 20.0
    waver = np.tile([-1.0, 1.0], 500)
    resampled[:, 0], resampled[:, 1], resampled[:, 15] = 0.5 + waver, 8.0 - waver, 20.0
    assert significance._estimate_lift(sums, resampled) == pytest.approx(1.0 / 20)


def test_a_large_difference_is_found():
    found = [
        significance.compare_arms(METRICS["accuracy"], *study(i, 3, 0.05, effect=0.9), seed=i)
        for i in range(20)
    ]
    assert sum(c.p < 0.05 and c.low > 0 for c in found) >= 18
    assert found[0].describe("A", "B", "higher") == "A is better than B"
    assert found[0].describe("A", "B", "lower") == "B is better than A"


def test_no_difference_is_said_in_these_words():
    none = significance.compare_arms(METRICS["accuracy"], *study(0, 3, 0.0))
    assert none.describe("A", "B", "higher") == "no evidence of a difference between A and B"


def test_an_arm_does_not_differ_from_itself():
    same, _ = study(0, 3, 0.3)
    found = significance.compare_arms(METRICS["macro_f1"], same, same)
    assert (found.difference, found.low, found.high, found.p, found.p_randomization) == (
        0,
        0,
        0,
        1,
        1,
    )


def test_the_order_of_examples_does_not_matter():
    a, b = study(3, 2, 0.1)
    shuffled = [p.take_rows(np.random.default_rng(1).permutation(EXAMPLES)) for p in b]
    assert significance.compare_arms(METRICS["accuracy"], a, b) == significance.compare_arms(
        METRICS["accuracy"], a, shuffled
    )


def test_one_example_tells_nothing():
    right, wrong = predictions(np.ones(1, dtype=bool)), predictions(np.zeros(1, dtype=bool))
    for found in (
        significance.pool_seeds,
        lambda metric, seeds: significance.compare_arms(metric, seeds, seeds[::-1]),
    ):
        with pytest.raises(UserError, match="the test set has one example"):
            found(METRICS["accuracy"], [right, wrong])


def test_other_examples_cannot_be_compared():
    a, b = study(0, 1, 0.0)
    with pytest.raises(UserError, match="different examples"):
        significance.compare_arms(METRICS["accuracy"], a, [b[0].take_rows(range(50))])


@pytest.mark.parametrize(("only_a", "only_b"), [(8, 0), (12, 4), (30, 22), (5, 5)])
def test_the_randomization_test_of_one_seeds_accuracies_is_mcnemars(only_a, only_b, monkeypatch):
    """Exact: binomial over the examples on which the two disagree."""
    monkeypatch.setattr(significance, "SAMPLES", 4000)
    a, b = np.ones(100, dtype=bool), np.ones(100, dtype=bool)
    b[:only_a], a[only_a : only_a + only_b] = False, False
    found = significance.compare_arms(METRICS["accuracy"], [predictions(a)], [predictions(b)])
    exact = binomtest(only_a, only_a + only_b).pvalue
    assert found.p == found.p_randomization == pytest.approx(exact, abs=0.03)


def test_holm():
    assert significance.adjust_p_values([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert significance.adjust_p_values([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_holm_keeps_the_rate_over_a_family():
    """Of twenty true nulls, at least one is called a difference in 5% of the families."""
    generator = np.random.default_rng(0)
    families = sum(
        min(significance.adjust_p_values(list(generator.random(20)))) < 0.05
        for _ in range(10 * STUDIES)
    )
    assert 0.04 <= families / (10 * STUDIES) <= 0.06


def test_a_comparison_is_judged_by_its_corrected_p():
    ps = (0.01, 0.04, 0.03)
    alone = [significance.Comparison("accuracy", 0.1, 0.0, 0.2, p, p, 100, 3) for p in ps]
    assert [c.is_significant for c in alone] == [True, True, True]
    corrected = significance.correct_comparisons(alone)
    assert [c.p for c in corrected] == list(ps)
    assert [c.p_holm for c in corrected] == pytest.approx([0.03, 0.06, 0.06])
    assert [c.is_significant for c in corrected] == [True, False, False]
    assert corrected[1].describe("A", "B", "higher").startswith("no evidence")
