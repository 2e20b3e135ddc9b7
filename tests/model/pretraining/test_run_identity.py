"""The numbers a step computes are written down, so that they cannot change without the version."""

import pytest
import torch

from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.run_identity import COMPUTATION_VERSION
from tests.model.pretraining.first_losses import compute_losses
from tests.model.synthetic_shards import write_shards

STEPS = 6
# Every part of the step has a say: dropout, clipping and decay are strong enough to be seen.
SETTINGS = {
    "layers": "2",
    "hidden": "64",
    "intermediate": "128",
    "embedding": "32",
    "heads": "2",
    "batch": "8",
    "device_batch": "4",
    "dropout": "0.1",
    "learning_rate": "5e-3",
    "weight_decay": "1",
    "clip": "0.5",
    "steps": "20",
    "seed": "3",
}
LOSSES: dict[int, dict[str, list[float]]] = {
    3: {
        "electra": [35.1667, 25.279, 25.32677, 23.05539, 26.44839, 23.27192],
        "mlm": [4.60758, 4.55645, 4.52295, 4.3882, 4.33643, 4.23851],
        "mlm+nsp": [5.27841, 5.21323, 5.29867, 5.15332, 5.0416, 4.97835],
    },
}
"""Of the first steps, by COMPUTATION_VERSION and objective."""


def compute_first_losses(objective, shards, output):
    preset = apply_settings(PRESETS["tiny"], SETTINGS | {"objective": objective})
    training = build_training(preset, Shards.open(shards), open_device("cpu", "fp32"), output)
    return compute_losses(training, STEPS)


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("objective", ["electra", "mlm", "mlm+nsp"])
def test_the_numbers_of_a_step_change_only_with_the_version(objective, tmp_path, one_thread):
    losses = compute_first_losses(objective, write_shards(tmp_path / "shards"), tmp_path / "out")
    known = LOSSES.get(COMPUTATION_VERSION, {}).get(objective, [])
    assert losses == pytest.approx(known, abs=1e-4), (
        f"the first {STEPS} steps of {objective} lose {[round(loss, 5) for loss in losses]}, "
        f"version {COMPUTATION_VERSION} is known to lose {known}: if the change is meant, raise "
        "COMPUTATION_VERSION in model/pretraining/run_identity.py (and the version of the stage in "
        "flows/stages/pretraining.py) and write the new losses down in LOSSES; if not, undo it"
    )
