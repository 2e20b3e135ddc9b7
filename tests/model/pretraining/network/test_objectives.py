"""Masked language modelling and next-sentence prediction on the same loop; validation."""

import math
from dataclasses import replace

import pytest
import torch
from transformers import ElectraForMaskedLM

from amazon_electra.model.pretraining.input.sequences import Shards
from tests.model.pretraining.runs import SHAPE, build, pretrain, read_curve
from tests.model.synthetic_shards import write_shards

SETTINGS = SHAPE | {"batch": 16, "log_every": 5}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=200, length=64)


def test_the_control_trains_and_exports(shards, tmp_path):
    own = SETTINGS | {"objective": "mlm+nsp", "learning_rate": 1e-2}
    result = pretrain(shards, tmp_path, steps=40, **own)
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


def test_measuring_leaves_training_alone(shards, tmp_path):
    dev = write_shards(tmp_path / "dev", sequences=40, length=64, seed=7, split="dev")
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
