"""Pre-training killed and starved of disk: what was on disk is not lost, the end is the same."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import runtime
from amazon_electra.model.pretrain import pretrain
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.model.synthetic_shards import write_shards

SETTINGS = {"layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32, "batch": 8}
SETTINGS |= {"dropout": 0.1, "log_every": 5, "checkpoint_every": 10}
KILLS, STEPS = 4, 160
STARVED = """
import resource, sys
from amazon_electra.beam_jobs.core.command_line import run_as_command
from amazon_electra.model.runtime import list_checkpoints
from amazon_electra.model.pretrain import pretrain
from pathlib import Path
from tests.model.pretraining.termination import act_at
from tests.patience import eventually

size, folder = int(sys.argv.pop(1)), Path(sys.argv.pop(1))
def starve():
    eventually(lambda: list_checkpoints(folder))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
with act_at(15, starve):
    run_as_command(pretrain)
"""
"""Pre-training that may write no file beyond `size` bytes once its first checkpoint is there."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=100)


def list_words(shards, output, steps):
    sets = [f"--{name}={value}" for name, value in SETTINGS.items()]
    fixed = ["--recipe", "sample", "--device", "cpu", "--threads", "1", "--steps", str(steps)]
    return ["--shards", str(shards), "--output", str(output), *fixed, *sets]


def start(shards, output, steps, program=("-m", "amazon_electra.model.pretrain")):
    return subprocess.Popen(
        [sys.executable, *map(str, program), *list_words(shards, output, steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        text=True,
    )


def finish(shards, output, steps):
    """Run the same command to its end, in this process."""
    threads = torch.get_num_threads()
    call_job(pretrain, list_words(shards, output, steps))
    torch.set_num_threads(threads)


def digest(output):
    whole = hashlib.sha256()
    last = runtime.list_checkpoints(output / "checkpoints")[-1]
    roles = (output / role / "model.safetensors" for role in ("discriminator", "generator"))
    for path in (last / runtime.TENSORS, *roles):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def newest(output):
    kept = runtime.list_checkpoints(output / "checkpoints")
    return kept[-1].name if kept else None


@pytest.mark.slow
def test_killed_at_any_moment_again_and_again_the_weights_are_those_of_an_undisturbed_run(
    shards, tmp_path
):
    """Kills fall anywhere after the first checkpoint of each life: in a step, while writing, while
    exporting.
    """
    finish(shards, tmp_path / "whole", STEPS)
    times = [line["time"] for line in read_metrics(tmp_path / "whole")]
    checkpoint_seconds = (times[-1] - times[0]) * SETTINGS["checkpoint_every"] / STEPS
    output, draw, killed = tmp_path / "killed", random.Random(0), 0
    for _ in range(KILLS):
        process = start(shards, output, STEPS)
        before = newest(output)
        while newest(output) == before and process.poll() is None:
            time.sleep(0.002)
        time.sleep(2 * draw.random() * checkpoint_seconds)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        process.communicate()
    assert killed
    finish(shards, output, STEPS)
    assert digest(output) == digest(tmp_path / "whole")


@pytest.mark.smoke
def test_disk_full_while_saving(shards, tmp_path):
    """A file may not grow beyond a limit, so that the second checkpoint fails in the middle."""
    whole, output = tmp_path / "whole", tmp_path / "starved"
    finish(shards, whole, 30)
    [*_, last] = runtime.list_checkpoints(whole / "checkpoints")
    size = (last / runtime.TENSORS).stat().st_size
    process = start(shards, output, 30, ("-c", STARVED, size // 2, output / "checkpoints"))
    _, errors = process.communicate()
    assert process.returncode == 2
    kept = runtime.list_checkpoints(output / "checkpoints")
    assert runtime.load_state(kept[-1]).step >= 10
    assert kept[-1].name in errors
    assert not list((output / "checkpoints").glob(f"{runtime.TEMPORARY}*"))
    finish(shards, output, 30)
    assert digest(output) == digest(whole)
