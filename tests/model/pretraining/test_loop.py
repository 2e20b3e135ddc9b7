"""The optimizer of a step, and the warnings of a validation."""

import pytest
import torch

from amazon_electra.model.pretraining.loop import run_step
from amazon_electra.model.pretraining.optimizer import compute_learning_rate
from amazon_electra.model.pretraining.validation import describe_collapse
from tests.model.pretraining.runs import SHAPE, build, pretrain

RATE = 1e-3  # of the first step: steps=1000 and no warm-up leave the learning rate almost as it is
FIXED = SHAPE | {"learning_rate": RATE, "warmup": 0, "steps": 1000}


def take_step(shards, output, **settings):
    """Each parameter before and after one step, by name."""
    training = build(shards, output, **FIXED | settings)
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter += 0.5
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    run_step(training, next(training.batches.iterate_steps(0)))
    return {name: (before[name], p.detach()) for name, p in training.model.named_parameters()}


def test_the_gradient_is_clipped(shards, tmp_path):
    """Adam moves by the rate whatever the gradient, unless it is far below epsilon."""
    free = take_step(shards, tmp_path, weight_decay=0, clip=1)
    held = take_step(shards, tmp_path, weight_decay=0, clip=1e-12)
    assert max(float((a - b).abs().max()) for a, b in free.values()) > 0.5 * RATE
    assert max(float((a - b).abs().max()) for a, b in held.values()) < 1e-3 * RATE


def test_matrices_decay_and_biases_and_norms_do_not(shards, tmp_path):
    """google's exclusion; clipping leaves nothing but decay of the step."""
    for before, after in take_step(shards, tmp_path, weight_decay=10, clip=1e-12).values():
        factor = 1 - 10 * RATE if before.ndim > 1 else 1.0
        torch.testing.assert_close(after, before * factor, rtol=2e-5, atol=1e-6)


def test_the_rate_rises_and_falls():
    rates = [compute_learning_rate(2, 0.1, progress) for progress in (0, 0.05, 0.1, 0.5, 1, 1.1)]
    assert rates == pytest.approx([0, 0.95, 1.8, 1.0, 0, 0])
    assert compute_learning_rate(2, 0, 0.0) == 2.0


def test_a_constant_is_warned_of(shards, dev_shards, tmp_path, capsys):
    words = ("--validation", dev_shards)
    result = pretrain(shards, tmp_path / "out", *words, steps=4, learning_rate=1e-6, **SHAPE)
    warning = "step 4: the discriminator is a constant so far (AUC 0."
    assert warning in capsys.readouterr().err
    [kept] = result["warnings"]
    assert kept.startswith(warning)
    for auc in (0.8, float("nan")):
        assert describe_collapse(4, {"validation_discriminator_auc": auc}) is None
