"""Samples are those of the smallest hashes, and neither they nor their features stay in memory."""

import tracemalloc
from collections import defaultdict

import numpy as np
import pytest

from amazon_electra.model.finetuning.examples import (
    Example,
    Sampling,
    hash_example_id,
    sample_examples,
)
from amazon_electra.model.finetuning.feature_cache import load_features
from amazon_electra.model.finetuning.features import Featurizer
from amazon_electra.model.finetuning.network import load_tokenizer
from tests.model.corpora import examples_of_every_shape, write_tokenizer


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
    assert list(found) == sample_by_sorting(examples, sampling)
    assert found[1:3] == list(found)[1:3]
    with pytest.raises(IndexError):
        found[len(found)]


@pytest.mark.parametrize(("shape", "examples"), list(examples_of_every_shape()))
def test_examples_of_every_shape_come_back_from_the_file(shape, examples):
    found = sample_examples(examples, Sampling())
    assert sorted(found, key=lambda e: e.id) == sorted(examples, key=lambda e: e.id)


def test_an_example_and_its_features_take_a_hundred_bytes(tmp_path):
    """Of the process: text and token ids lie in temporary files, half a kilobyte each here."""
    write_tokenizer(tmp_path)
    featurizer = Featurizer(load_tokenizer(str(tmp_path)), "classification", max_length=128)
    text = "the lamp is great and sturdy " * 30
    examples = (Example(f"{i:032x}", f"{text}{i}", label=i % 2) for i in range(2000))
    tracemalloc.start()
    sample = sample_examples(examples, Sampling())
    features = load_features(featurizer, sample, None)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(features) == 2000
    assert features[7].length == 128
    assert features[7].target == sample[7].label
    assert held / 2000 < 100
