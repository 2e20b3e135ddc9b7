"""The stack's weights, and the folders it is fitted from."""

import numpy as np
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.arms.stack import choose_weights, find_parts


def make_logits(labels, noise):
    right = np.eye(2)[labels] * 2
    return (right + np.random.default_rng(int(noise * 10)).normal(size=right.shape) * noise).astype(
        np.float32
    )


def test_the_better_part_has_the_larger_weight():
    labels = np.random.default_rng(0).integers(0, 2, 2_000)
    good, poor = make_logits(labels, 1.0), make_logits(labels, 3.0)
    weights, tried = choose_weights([good * 5, poor * 5], labels)
    assert weights[0] > 3 * weights[1]
    assert sum(weights) < 0.5, "too sure, which the temperature mends"
    losses = [one["loss"] for one in tried]
    assert losses == sorted(losses)


def test_few_examples_choose_no_weight():
    labels = np.random.default_rng(0).integers(0, 2, 99)
    weights, _ = choose_weights([make_logits(labels, 1.0), make_logits(labels, 3.0)], labels)
    assert weights == [0.5, 0.5]


def test_parts_are_the_arms_that_are_combined(tmp_path):
    for name in ("finetuned", "tfidf"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "task.json", {"kind": name})
    words, network = tmp_path / "tfidf", tmp_path / "finetuned"
    assert find_parts([words, network], ("finetuned", "tfidf")) == [network, words]
    for given in ([], [words], [words, words], [words, network, network], [words, tmp_path]):
        with pytest.raises(UserError) as error:
            find_parts(given, ("finetuned", "tfidf"))
        assert error.value.field == "parts"
