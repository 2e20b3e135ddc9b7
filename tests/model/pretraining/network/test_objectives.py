"""Masked language modelling and next-sentence prediction on the same loop; validation."""

import itertools
import math
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import ElectraForMaskedLM

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.pretraining import loop
from amazon_electra.model.pretraining.assembly import Budget, build_validation, parse_budget
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.electra import corrupt_batch
from amazon_electra.model.recipes import RECIPES
from tests.model.pretraining.runs import SHAPE, build, pretrain, read_curve
from tests.model.synthetic_shards import write_shards
from tests.refusals import names

SETTINGS = SHAPE | {"batch": 16, "log_every": 5}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=200, length=64)


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    return write_shards(
        tmp_path_factory.mktemp("dev"), sequences=40, length=64, seed=7, split="dev"
    )


def start(shards, output, *words, **settings):
    return pretrain(shards, output, *words, **SETTINGS | settings)


def iterate_masked(shards, output, **settings):
    """Yield the batches of a run with their masks."""
    training = build(shards, output, **SETTINGS | settings)
    for arrays in training.batches.iterate_steps(0):
        yield training.batches.mask(training.device.put(arrays))


def test_the_control_trains_and_exports(shards, tmp_path):
    result = start(shards, tmp_path, "--steps", "40", objective="mlm+nsp", learning_rate=1e-2)
    losses = [*read_curve(tmp_path, "mlm_loss").values()]
    assert losses[-1] < losses[0] - 0.2
    assert 40 in read_curve(tmp_path, "nsp_loss")
    _, info = ElectraForMaskedLM.from_pretrained(result["encoder"], output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


@pytest.mark.parametrize("objective", ["electra", "mlm", "mlm+nsp"])
def test_a_batch_without_masked_tokens_is_no_loss(shards, tmp_path, objective):
    training = build(shards, tmp_path, **SETTINGS | {"objective": objective})
    batches, model = replace(training.batches, fraction=1e-9), training.model
    batch = batches.mask(training.device.put(next(batches.iterate_steps(0))))
    assert not batch["masked_weights"].any()
    result = model(batch)
    result.loss.backward()
    assert result.loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    nothing = dict.fromkeys(result.sums, 0.0)
    assert set(model.compute_means(nothing).values()) == {0.0}


def test_equal_flops(shards, tmp_path):
    """The control is given what ELECTRA used, and uses it to within one step."""
    electra = start(shards, tmp_path / "electra", "--steps", "5")
    mlm = start(
        shards, tmp_path / "mlm", "--budget", f"{electra['matrix_flops']}flops", objective="mlm"
    )
    assert mlm["steps"] > electra["steps"]
    assert mlm["matrix_flops"] == pytest.approx(electra["matrix_flops"], rel=1 / mlm["steps"])


def test_measuring_leaves_training_alone(shards, dev, tmp_path):
    training = build(shards, tmp_path, dev=Shards.open(dev, "--validation", "dev"), **SETTINGS)
    state = torch.random.get_rng_state()
    first, second = (training.validation(training.model, training.device) for _ in range(2))
    assert first == second
    names = {f"discriminator_{part}" for part in ("loss", "precision", "recall", "auc")}
    names |= {"loss", "generator_loss", "generator_accuracy"}
    assert {f"validation_{name}" for name in names} <= set(first)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert training.model.training
    assert first["validation_generator_loss"] == pytest.approx(math.log(100), abs=0.2)
    assert first["validation_discriminator_auc"] == pytest.approx(0.5, abs=0.1)


def test_dev_shards_of_another_vocabulary_are_refused(shards, tmp_path):
    other = Shards.open(write_shards(tmp_path, size=50, length=64))
    with pytest.raises(UserError, check=names(f" {tmp_path}: ")):
        build_validation(RECIPES["sample"].pretraining, Shards.open(shards), other)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("30min", Budget(seconds=1800)),
        ("45s", Budget(seconds=45)),
        ("1.5h", Budget(seconds=5400)),
        ("1d", Budget(seconds=86400)),
        ("1.5e15flops", Budget(flops=1.5e15)),
    ],
)
def test_budgets(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["30", "min", "3 weeks", "-5min", "1.2.3min", "0s", "1e999d"])
def test_budgets_nobody_understands(text):
    with pytest.raises(UserError) as raised:
        parse_budget(text)
    assert (raised.value.field, raised.value.value) == ("budget", text)


def test_a_time_budget_is_kept(shards, tmp_path, monkeypatch):
    """By a clock of its own, which goes on by 20 ms whenever it is read."""
    clock = SimpleNamespace(
        monotonic=partial(next, itertools.count(0.0, 0.02)), process_time=time.process_time
    )
    monkeypatch.setattr(loop, "time", clock)
    result = start(shards, tmp_path, "--budget", "4s", log_every=1)
    assert 4 <= result["seconds"] < 4.2
    rates = [*read_curve(tmp_path, "learning_rate").values()]
    assert rates[-1] < 0.2 * max(rates)
    peak = rates.index(max(rates))
    assert peak < len(rates) / 2


@pytest.mark.parametrize(
    ("objective", "expected"), [("electra", (0.85, 0.0, 0.15)), ("mlm", (0.8, 0.1, 0.1))]
)
def test_masked_tokens_are_replaced_as_published(shards, tmp_path, objective, expected):
    """google's 85% [MASK] for ELECTRA, bert's 80/10/10 for MLM, in the batches of a run."""
    before, after = [], []
    for batch in itertools.islice(iterate_masked(shards, tmp_path, objective=objective), 30):
        used = batch["masked_weights"] > 0
        for ids, kept in ((batch["input_ids"], before), (batch["masked_ids"], after)):
            kept.append(ids.gather(1, batch["masked_positions"])[used].numpy())
    old, new = np.concatenate(before), np.concatenate(after)
    shares = (new == 4).mean(), ((new != 4) & (new != old)).mean(), (new == old).mean()
    assert shares == pytest.approx(expected, abs=0.02)


def test_a_sampled_original_is_not_replaced(shards, tmp_path):
    batch = next(iterate_masked(shards, tmp_path))
    originals = batch["input_ids"].gather(1, batch["masked_positions"])
    corrupted, replaced = corrupt_batch(batch, originals.flatten())
    assert torch.equal(corrupted, batch["input_ids"])
    assert not replaced.any()
    corrupted, replaced = corrupt_batch(batch, (originals + 1).flatten())
    assert replaced.sum() == batch["masked_weights"].sum()
    assert torch.equal(replaced.bool(), corrupted != batch["input_ids"])
