"""Which reviews of a corpus are examples of its tasks."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from amazon_electra.model.finetuning.examples import (
    SPLITS,
    Example,
    Sampling,
    hash_example_id,
    sample_examples,
)
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.corpora import write_corpus


def read_ids(corpus, task, split, n=None):
    return {e.id for e in find_task(task).read(corpus, split, Sampling(n), Counter())}


def test_labels_of_pretrain_and_train_are_trained_on(tmp_path):
    corpus = write_corpus(tmp_path)
    rows = [row for file in corpus.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    for task, classes in (("polarity", {1, 2, 4, 5}), ("stars", {1, 2, 3, 4, 5})):
        read = {split: read_ids(corpus, task, split) for split in SPLITS}
        for split in SPLITS:
            sides = {"pretrain", "train"} if split == "train" else {split}
            wanted = {r["review_id"].hex() for r in rows if r["split"] in sides}
            labelled = {r["review_id"].hex() for r in rows if r["stars"] in classes}
            assert read[split] == wanted & labelled
        assert read_ids(corpus, task, "train", 50) < read["train"]


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
