"""Pre-training on XLA, on its CPU client. Runs in an environment of its own (`make test-xla`):
torch_xla 2.9 needs torch 2.9. Each test is a process of its own, since XLA's client lives once per
process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "torch_xla",
    reason="torch_xla is not installed here; make test-xla makes an environment that has it",
)

import torch
from safetensors.torch import load_file

from amazon_electra.model import runtime
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.model.synthetic_shards import write_shards

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(1800)  # seconds; XLA compiles two graphs in each process
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
SETTINGS = {
    "layers": 2,
    "hidden": 32,
    "intermediate": 64,
    "embedding": 16,
    "batch": 8,
    "dropout": 0.0,
}
SETTINGS |= {"precision": "fp32", "log_every": 1, "checkpoint_every": 10}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=100)


def child(*command, **environment):
    xla = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": QUICK, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=os.environ | xla | environment,
        cwd=ROOT,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def pretrain(shards, output, device, steps=20, **settings):
    sets = [part for name, value in (SETTINGS | settings).items() for part in [f"--{name}={value}"]]
    fixed = ["--recipe", "sample", "--device", device, "--threads", "1", "--steps", str(steps)]
    return child(
        "-m",
        "amazon_electra.model.pretrain",
        "--shards",
        str(shards),
        "--output",
        str(output),
        *fixed,
        *sets,
    )


def losses(output):
    return [
        (line["generator_loss"], line["discriminator_loss"])
        for line in read_metrics(output)
        if "loss" in line
    ]


@pytest.mark.smoke
def test_twenty_steps_are_those_of_the_cpu_and_resume_is_exact(shards, tmp_path):
    pretrain(shards, tmp_path / "cpu", "cpu")
    pretrain(shards, tmp_path / "xla", "xla")
    torch.testing.assert_close(
        torch.tensor(losses(tmp_path / "xla")),
        torch.tensor(losses(tmp_path / "cpu")),
        atol=1e-4,
        rtol=0,
    )
    whole = load_file(tmp_path / "xla" / "checkpoints" / "step-00000020" / runtime.TENSORS)
    for path in (tmp_path / "xla" / "checkpoints" / "step-00000020").iterdir():
        path.unlink()
    (tmp_path / "xla" / "checkpoints" / "step-00000020").rmdir()
    pretrain(shards, tmp_path / "xla", "xla")
    again = load_file(tmp_path / "xla" / "checkpoints" / "step-00000020" / runtime.TENSORS)
    assert all(torch.equal(again[name], tensor) for name, tensor in whole.items())


def test_two_hundred_steps_compile_no_more_and_stay_on_the_device(shards):
    counts = child("-m", "tests.xla.count_steps", str(shards))
    assert counts == {"compiled_after_step_2": 0, "read_after_step_2": 0, "fallbacks": []}


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_virtual_devices_by_spmd_equal_one(shards, devices):
    flags = f"{QUICK} --xla_force_host_platform_device_count={devices}"
    # each device waits for the others in a thread of its own, of which XLA has one a core
    environment = {"XLA_FLAGS": flags, "CPU_NUM_DEVICES": str(devices), "NPROC": str(2 * devices)}
    numbers = child("-m", "tests.xla.spmd", str(shards), **environment)
    assert numbers["devices"] == devices
    torch.testing.assert_close(
        torch.tensor(numbers["spmd"]), torch.tensor(numbers["one"]), atol=1e-4, rtol=0
    )
