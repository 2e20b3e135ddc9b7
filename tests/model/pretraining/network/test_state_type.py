"""States in bf16 lose what states in fp32 lose, to a little, and take less memory."""

import pytest
import torch

from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.run_identity import identify_run
from tests.model.pretraining.first_losses import compute_losses
from tests.model.synthetic_shards import write_shards

STEPS = 6
SETTINGS = {
    "layers": "3",
    "hidden": "64",
    "intermediate": "128",
    "embedding": "32",
    "heads": "2",
    "batch": "8",
    "learning_rate": "2e-3",
    "steps": "20",
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return Shards.open(write_shards(tmp_path_factory.mktemp("states") / "shards"))


def open_training(shards, output, states, precision="bf16"):
    settings = SETTINGS | {"precision": precision, "states": states}
    preset = apply_settings(PRESETS["tiny"], settings)
    return build_training(preset, shards, open_device("cpu", precision), output)


def test_the_losses_are_near_those_with_states_in_fp32(shards, tmp_path):
    wide, narrow = (
        compute_losses(open_training(shards, tmp_path, states), STEPS)
        for states in ("fp32", "bf16")
    )
    assert narrow != wide
    assert narrow == pytest.approx(wide, rel=0.02)


def test_where_products_are_fp32_so_are_the_states(shards, tmp_path):
    training = open_training(shards, tmp_path, "bf16", precision="auto")
    kinds = {norm.states for layer in training.model.trunk.layers for norm in layer.norms}
    assert kinds == {torch.bfloat16 if training.device.bf16 else torch.float32}


def test_another_type_is_another_run_and_fp32_is_the_one_it_always_was(shards):
    presets = [apply_settings(PRESETS["tiny"], {"states": kind}) for kind in ("fp32", "bf16")]
    wide, narrow = (identify_run(preset, shards) for preset in presets)
    assert narrow == wide | {"states": "bf16"}
    assert "states" not in wide
