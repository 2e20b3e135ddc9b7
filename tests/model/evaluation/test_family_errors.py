"""Whole studies without a difference: Holm's correction finds one in at most 6% of them, however
much pre-trainings and fine-tunings vary.

The numbers are drawn as the study's arms are compared: each arm has a value for every task,
pre-training and fine-tuning, in points, and comparisons share arms.
"""

import numpy as np
import pytest

from amazon_electra.model.evaluation import significance

EXAMPLES, OWN_WAY = 0.6, 0.3
"""Deviation of a difference by the examples, and of each seed's by its own way with them."""
FAMILIES = {
    6: (3, 2, [(0, 1), (0, 2), (1, 2)]),
    36: (4, 12, [(0, 1), (0, 2), (0, 3)]),
    60: (6, 12, [(0, other) for other in range(1, 6)]),
}
"""Comparisons → arms, tasks, pairs of arms."""


def draw_differences(generator, size, pretraining, finetuning, shared=0.3, gain=0.0):
    """Return [comparisons, 3, 3]; the first arm gains `gain`. An encoder that is good at one task
    is better at the others too, by the share `shared` of its variance.
    """
    arms, tasks, pairs = FAMILIES[size]

    def draw(deviation, *shape):
        common = generator.normal(0, 1, (arms, 1, *shape))
        own = generator.normal(0, 1, (arms, tasks, *shape))
        return deviation * (np.sqrt(shared) * common + np.sqrt(1 - shared) * own)

    values = draw(pretraining, 3, 1) + draw(finetuning, 1, 3)
    values += generator.normal(0, OWN_WAY / np.sqrt(2), (arms, tasks, 3, 3))
    values += generator.normal(0, EXAMPLES / np.sqrt(2), (arms, tasks, 1, 1))
    values[0] += gain
    return np.concatenate([values[a] - values[b] for a, b in pairs])


def correct_family(size, differences):
    """Return Holm's p of each comparison."""
    arms, tasks, _ = FAMILIES[size]
    p, f, both = significance._compute_mean_squares(np.moveaxis(differences, 0, -1))
    spreads = []
    for squares in zip(p.tolist(), f.tolist(), both.tolist(), strict=True):
        between, freedom = significance.combine_mean_squares(*squares, (3, 3))
        spreads.append(significance.Spread(EXAMPLES**2, between / 9, OWN_WAY**2 / 9, freedom))
    pooled = significance._pool_spreads(spreads, tasks * (arms - 1))
    ps = [
        float(significance._compute_p(one.mean(), spread))
        for one, spread in zip(differences, pooled, strict=True)
    ]
    return np.array(significance.adjust_p_values(ps))


def simulate(size, families, seed=0, **asked):
    """Return the share of families with a finding, and of comparisons found."""
    generator = np.random.default_rng([size, seed])
    found = [
        correct_family(size, draw_differences(generator, size, **asked)) < 0.05
        for _ in range(families)
    ]
    return np.mean([one.any() for one in found]), np.mean(found)


@pytest.mark.parametrize(("pretraining", "finetuning"), [(0.3, 1.0), (1.0, 0.3)])
def test_of_studies_without_a_difference_few_find_one(pretraining, finetuning):
    for size, families in ((6, 300), (36, 120), (60, 100)):
        wrong, _ = simulate(size, families, pretraining=pretraining, finetuning=finetuning)
        assert wrong <= 0.06, size


@pytest.mark.parametrize(("gain", "least"), [(3.0, 0.25), (5.0, 0.6)])
def test_what_differs_is_found(gain, least):
    """A study of 6 has two comparisons that differ, of three."""
    for size in FAMILIES:
        _, found = simulate(size, 40, pretraining=0.3, finetuning=1.0, gain=gain)
        assert found >= least, size
