"""Samples are those of the smallest hashes."""

from collections import defaultdict

import numpy as np
import pytest

from amazon_electra.model.finetuning.examples import (
    Example,
    Sampling,
    hash_example_id,
    sample_examples,
)


def sample_by_sorting(examples, sampling):
    """Sort everything: what a sample is."""
    ranked = sorted(examples, key=lambda e: (hash_example_id(e.id, sampling.seed), e.id))
    if not sampling.balanced:
        return ranked[: sampling.n]
    classes = defaultdict(list)
    for example in ranked:
        classes[example.label].append(example)
    size = min(map(len, classes.values()))
    size = min(size, sampling.n // len(classes)) if sampling.n else size
    chosen = {e.id for of_class in classes.values() for e in of_class[:size]}
    return [example for example in ranked if example.id in chosen]


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("n", [None, 1, 3, 50, 700, 5000])
def test_a_sample_has_the_smallest_hashes(n, balanced):
    labels = np.random.default_rng(0).choice(3, 3000, p=[0.7, 0.25, 0.05]).tolist()
    examples = [Example(f"r{i}", f"lamp {i}", label=label) for i, label in enumerate(labels)]
    sampling = Sampling(n, seed=4, balanced=balanced)
    found = sample_examples(iter(examples), sampling)
    assert found == sample_by_sorting(examples, sampling)
