"""Pre-training killed, starved of disk, told to stop: nothing that was on disk is lost, and the end
is the same.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.pretraining import checkpoint
from model.pretraining.loop import EXIT_TERMINATED
from model.tracking.metrics_log import read_metrics
from tests.model.synthetic_shards import write_shards

SETTINGS = {"layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32, "batch": 8}
SETTINGS |= {"dropout": 0.1, "log_every": 5, "checkpoint_every": 10}
KILLS = 10
STARVED = """
import resource, sys
from beam_jobs.job.command import main
from model.pretraining.checkpoint import list_checkpoints
from model.pretrain import run
from pathlib import Path
from tests.model.pretraining.termination import act_at
from tests.patience import eventually

size, folder = int(sys.argv.pop(1)), Path(sys.argv.pop(1))
def starve():
    eventually(lambda: list_checkpoints(folder))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
with act_at(15, starve):
    main(run)
"""
"""Pre-training that may write no file beyond `size` bytes once its first checkpoint is there."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=100)


def start(shards, output, steps, program=("-m", "model.pretrain"), **settings):
    sets = [
        part
        for name, value in (SETTINGS | settings).items()
        for part in ("--set", f"{name}={value}")
    ]
    fixed = ["--preset", "tiny", "--device", "cpu", "--threads", "1", "--steps", str(steps)]
    command = [
        sys.executable,
        *map(str, program),
        "--shards",
        str(shards),
        "--output",
        str(output),
        *fixed,
        *sets,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=root,
        text=True,
    )


def finish(process):
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def digest(output):
    whole = hashlib.sha256()
    last = checkpoint.list_checkpoints(output / "checkpoints")[-1]
    for path in (
        last / checkpoint.TENSORS,
        *(output / r / "model.safetensors" for r in ("discriminator", "generator")),
    ):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def newest(output):
    kept = checkpoint.list_checkpoints(output / "checkpoints")
    return kept[-1].name if kept else None


@pytest.mark.timeout(1800)
def test_killed_ten_times_at_any_moment_the_weights_are_those_of_an_undisturbed_run(
    shards, tmp_path
):
    """Kills fall anywhere after the first checkpoint of each life: in a step, while writing, while
    exporting.
    """
    steps = 400
    finish(start(shards, tmp_path / "whole", steps))
    times = [line["time"] for line in read_metrics(tmp_path / "whole")]
    checkpoint_seconds = (times[-1] - times[0]) * SETTINGS["checkpoint_every"] / steps
    output, draw, killed = tmp_path / "killed", random.Random(0), 0
    for _ in range(KILLS):
        process = start(shards, output, steps)
        before = newest(output)
        while newest(output) == before and process.poll() is None:
            time.sleep(0.002)
        time.sleep(2 * draw.random() * checkpoint_seconds)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        process.communicate()
    assert killed >= KILLS // 2, "a life is about a twentieth of the whole"
    finish(start(shards, output, steps))
    assert digest(output) == digest(tmp_path / "whole")


def test_disk_full_while_saving(shards, tmp_path):
    """A file may not grow beyond a limit, so that the second checkpoint fails in the middle."""
    finish(start(shards, tmp_path, 10))
    size = (
        (checkpoint.list_checkpoints(tmp_path / "checkpoints")[0] / checkpoint.TENSORS)
        .stat()
        .st_size
    )
    output = tmp_path / "starved"
    program = ("-c", STARVED, size // 2, output / "checkpoints")
    process = start(shards, output, 40, program)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "no checkpoint could be written" in errors
    kept = checkpoint.list_checkpoints(output / "checkpoints")
    assert kept
    assert checkpoint.load_state(kept[-1]).step >= 10
    assert kept[-1].name in errors
    assert not list((output / "checkpoints").glob(f"{checkpoint.TEMPORARY}*"))
    finish(start(shards, output, 40))
    finish(start(shards, tmp_path / "whole", 40))
    assert digest(output) == digest(tmp_path / "whole")


def test_a_half_written_checkpoint_is_not_one(shards, tmp_path):
    finish(start(shards, tmp_path, 20))
    folder = tmp_path / "checkpoints"
    torn = folder / f"{checkpoint.TEMPORARY}step-00000030"
    torn.mkdir()
    (torn / checkpoint.TENSORS).write_bytes(b"torn")
    assert newest(tmp_path) == "step-00000020"
    checkpoint.prune_checkpoints(folder, keep=1)
    assert [path.name for path in folder.iterdir()] == ["step-00000020"]


@pytest.mark.smoke
def test_terminated_long_before_its_end(shards, tmp_path):
    process = start(shards, tmp_path, 10_000_000)
    while newest(tmp_path) is None:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == EXIT_TERMINATED
