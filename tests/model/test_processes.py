"""More processes, smaller parts: the same batch, the same weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.pretrain import run
from model.pretraining import checkpoint
from tests.model.synthetic_shards import write_shards

SETTINGS = {
    "layers": 2,
    "hidden": 32,
    "intermediate": 64,
    "embedding": 16,
    "batch": 16,
    "dropout": 0.0,
}
SETTINGS |= {"precision": "fp32", "log_every": 5, "checkpoint_every": 10}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=100)


def arguments(shards, output, steps, **settings):
    sets = [
        part
        for name, value in (SETTINGS | settings).items()
        for part in ("--set", f"{name}={value}")
    ]
    fixed = ["--preset", "tiny", "--device", "cpu", "--threads", "1", "--steps", str(steps)]
    return ["--shards", str(shards), "--output", str(output), *fixed, *sets]


def torchrun(processes, given):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(processes),
        "--master-port",
        "0",
    ]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *rendezvous, "-m", "model.pretrain", *given],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]


def weights(output, step):
    tensors = load_file(output / "checkpoints" / f"step-{step:08}" / checkpoint.TENSORS)
    return {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}


def test_two_processes_equal_one_and_a_run_may_change_their_number(shards, tmp_path):
    run(arguments(shards, tmp_path / "one", 20))
    torchrun(2, arguments(shards, tmp_path / "two", 20))
    for step in (10, 20):
        torch.testing.assert_close(
            weights(tmp_path / "two", step), weights(tmp_path / "one", step), atol=1e-5, rtol=0
        )
    resumed = tmp_path / "two" / "checkpoints" / "step-00000020"
    for path in resumed.iterdir():
        path.unlink()
    resumed.rmdir()
    result = run(arguments(shards, tmp_path / "two", 20))
    assert result["sequences"] == 320
    torch.testing.assert_close(
        weights(tmp_path / "two", 20), weights(tmp_path / "one", 20), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("part", [4, 8])
def test_accumulated_parts_equal_the_whole_batch(shards, tmp_path, part):
    run(arguments(shards, tmp_path / "whole", 10))
    run(arguments(shards, tmp_path / "parts", 10, device_batch=part))
    torch.testing.assert_close(
        weights(tmp_path / "parts", 10), weights(tmp_path / "whole", 10), atol=1e-5, rtol=0
    )
