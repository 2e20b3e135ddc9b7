"""The weight of the discriminator's loss may rise from nothing over the first steps."""

import pytest
import torch
from safetensors.torch import load_file

from beam_jobs.job.errors import UserError
from model.config import PretrainingConfig
from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretrain import run
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.step import run_step
from model.tracking.metrics_log import read_metrics
from tests.model.synthetic_shards import write_shards

SHAPE = {"layers": "1", "hidden": "32", "intermediate": "64", "embedding": "32", "batch": "8"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=100)


def build(shards, output, **settings):
    preset = apply_settings(PRESETS["tiny"], SHAPE | settings)
    return build_training(preset, Shards.open(shards), open_device("cpu", "fp32"), output)


def pretrain(shards, output, steps, **settings):
    sets = [w for n, v in (SHAPE | settings).items() for w in ("--set", f"{n}={v}")]
    words = ["--shards", str(shards), "--output", str(output), "--preset", "tiny", "--threads", "1"]
    return run([*words, "--device", "cpu", "--steps", str(steps), *sets])


def test_the_weight_rises_evenly_and_stays(shards, tmp_path):
    model = build(shards, tmp_path, discriminator_warmup="0.5", discriminator_weight="40").model
    weights = []
    for progress in (0.0, 0.125, 0.25, 0.5, 0.75, 1.0):
        model.begin_step(progress)
        weights.append(float(model.discriminator_weight))
    assert weights == pytest.approx([0, 10, 20, 40, 40, 40])
    assert "rising_weight" not in model.state_dict()
    with pytest.raises(UserError, match="discriminator_warmup"):
        apply_settings(PRESETS["tiny"], {"discriminator_warmup": "1.5"})


def test_the_loss_has_the_weight_of_the_moment_and_what_is_logged_the_full_one(shards, tmp_path):
    training = build(shards, tmp_path, discriminator_warmup="0.5", dropout="0")
    model = training.model
    batch = training.device.put(next(training.batches.iterate_steps(0)))
    step = {}
    for progress in (0.0, 0.25, 1.0):
        model.begin_step(progress)
        step[progress] = model(batch)
    sums = {name: float(value) for name, value in step[1.0].sums.items()}
    means = model.compute_means(sums)
    generator, discriminator = means["generator_loss"], means["discriminator_loss"]
    for progress, weight in ((0.0, 0.0), (0.25, 25.0), (1.0, 50.0)):
        wanted = generator + weight * discriminator
        assert step[progress].loss.item() == pytest.approx(wanted, rel=1e-5)
        assert model.compute_means(
            {name: float(value) for name, value in step[progress].sums.items()}
        )["loss"] == pytest.approx(generator + 50 * discriminator, rel=1e-5)


def test_a_step_has_the_weight_of_its_place_in_the_run(shards, tmp_path):
    weights = {}
    for warmup in ("0", "1"):
        training = build(shards, tmp_path / warmup, discriminator_warmup=warmup, steps="1000")
        training.model.train()
        run_step(training, next(training.batches.iterate_steps(0)))
        weights[warmup] = float(training.model.discriminator_weight)
    assert weights == {"0": 50.0, "1": pytest.approx(50 / 1001)}


def test_a_run_with_it_ends_with_the_full_weight_and_logs_no_jump(shards, tmp_path):
    pretrain(shards, tmp_path, 20, discriminator_warmup="0.5", log_every="1")
    losses = [line["loss"] for line in read_metrics(tmp_path) if "generator_loss" in line]
    assert len(losses) == 20
    assert max(losses) < 3 * losses[0]


def test_off_it_changes_nothing(shards, tmp_path):
    """Neither the bytes, nor what runs that were made before are known by."""
    told = PretrainingConfig(steps=1, batch=1, learning_rate=1e-3).describe()
    assert "discriminator_warmup" not in told
    pretrain(shards, tmp_path / "plain", 3)
    pretrain(shards, tmp_path / "zero", 3, discriminator_warmup="0")
    pretrain(shards, tmp_path / "rising", 3, discriminator_warmup="1")
    weights = {
        name: load_file(tmp_path / name / "discriminator" / "model.safetensors")
        for name in ("plain", "zero", "rising")
    }
    is_equal = {
        name: all(
            torch.equal(tensor, weights[name][key]) for key, tensor in weights["plain"].items()
        )
        for name in ("zero", "rising")
    }
    assert is_equal == {"zero": True, "rising": False}
