"""More processes, smaller parts: the same batch, the same weights; and they end together."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from beam_jobs.job.errors import UserError
from model.pretrain import run
from model.pretraining import checkpoint
from model.tracking.metrics_log import read_metrics
from tests.model.synthetic_shards import write_shards

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "layers": 2,
    "hidden": 32,
    "intermediate": 64,
    "embedding": 16,
    "batch": 16,
    "dropout": 0.1,
}
SETTINGS |= {"precision": "fp32", "log_every": 5, "checkpoint_every": 10}
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=100)


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("dev"), sequences=70, split="dev")


@pytest.fixture(scope="module")
def alone(shards, dev, tmp_path_factory):
    """Return what one process makes of 20 steps."""
    output = tmp_path_factory.mktemp("alone")
    run([*arguments(shards, output, 20, validate_every=10), "--validation", str(dev)])
    return output


def arguments(shards, output, steps, **settings):
    sets = [
        part
        for name, value in (SETTINGS | settings).items()
        for part in ("--set", f"{name}={value}")
    ]
    fixed = ["--preset", "tiny", "--device", "cpu", "--threads", "1", "--steps", str(steps)]
    return ["--shards", str(shards), "--output", str(output), *fixed, *sets]


def start(*words):
    command = [sys.executable, "-m", "model.pretrain", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT, start_new_session=True, **pipes)


def finish(process, seconds=120):
    out, errors = process.communicate(timeout=seconds)
    return process.returncode, out, errors


def torchrun(processes, given):
    numbers = ["--nproc-per-node", str(processes), "--master-port", "0"]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command = [sys.executable, "-m", "torch.distributed.run", *numbers, *rendezvous]
    done = subprocess.run(
        [*command, "-m", "model.pretrain", *given],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def weights(output, step):
    tensors = load_file(output / "checkpoints" / f"step-{step:08}" / checkpoint.TENSORS)
    return {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}


def remove_step(output, step):
    folder = output / "checkpoints" / f"step-{step:08}"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def assert_same_weights(first, second, step):
    torch.testing.assert_close(weights(first, step), weights(second, step), atol=1e-5, rtol=0)


def test_processes_equal_one_with_dropout_and_a_run_may_change_their_number(
    shards, dev, alone, tmp_path
):
    """Losses, weights and measures on dev shards are those of one process, which goes on with what
    two have begun.
    """
    given = [*arguments(shards, tmp_path, 20, validate_every=10), "--validation", str(dev)]
    code, out, errors = finish(start(*given, "--processes", "2"))
    assert code == 0, errors[-3000:]
    assert json.loads(out)["sequences"] == 320
    for step in (10, 20):
        assert_same_weights(tmp_path, alone, step)
    logs = [
        {name: value for line in read_metrics(folder) for name, value in line.items()}
        for folder in (tmp_path, alone)
    ]
    measures = [name for name in logs[1] if "loss" in name or name.startswith("validation")]
    assert len(measures) > 8
    for name in measures:
        assert logs[0][name] == pytest.approx(logs[1][name], abs=1e-5, rel=1e-5), name
    remove_step(tmp_path, 20)
    assert run(given)["sequences"] == 320
    assert_same_weights(tmp_path, alone, 20)


def test_processes_go_on_with_what_one_has_begun_also_by_torchrun(shards, alone, tmp_path):
    for path in alone.glob("checkpoints/step-00000010/*"):
        copy = tmp_path / path.relative_to(alone)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    torchrun(2, arguments(shards, tmp_path, 20))
    assert_same_weights(tmp_path, alone, 20)


@pytest.mark.parametrize("part", [4, 8])
def test_accumulated_parts_equal_the_whole_batch(shards, tmp_path, part):
    run(arguments(shards, tmp_path / "whole", 10, dropout=0.0))
    run(arguments(shards, tmp_path / "parts", 10, dropout=0.0, device_batch=part))
    assert_same_weights(tmp_path / "parts", tmp_path / "whole", 10)


def list_ranks(launcher):
    """Return the processes that train, once all have read their first batch."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = psutil.Process(launcher.pid).children(recursive=True)
        ranks = [p for p in children if "-I" not in p.cmdline()]
        if len(ranks) == 2 and all(p.num_threads() > 2 for p in ranks):
            return ranks
        time.sleep(0.1)
    raise AssertionError("two processes did not start")


@pytest.fixture
def endless(shards, tmp_path):
    """Return two processes in the middle of a training, and what they write."""
    process = start(*arguments(shards, tmp_path, 1_000_000), "--processes", "2")
    while not (tmp_path / "checkpoints").is_dir():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    ranks = list_ranks(process)
    yield process, ranks, tmp_path
    process.kill()
    psutil.wait_procs(ranks, timeout=30)


def find_second(ranks):
    return next(p for p in ranks if p.environ()["RANK"] == "1")


def test_when_one_process_is_killed_all_end_and_one_line_says_why(endless):
    process, ranks, _ = endless
    find_second(ranks).kill()
    code, out, errors = finish(process, 30)
    assert code == os.EX_TEMPFAIL
    assert out == ""
    told = [line for line in errors.splitlines() if not line.startswith("pre-training:")]
    assert told[-1] == (
        "error: process 2 of 2 was ended by signal 9; the same command continues from the last "
        "checkpoint"
    )
    assert sum("rror" in line for line in told) == 1
    assert not any(p.is_running() for p in ranks)


def test_a_signal_to_any_one_process_makes_all_write_a_checkpoint_and_end(endless):
    process, ranks, output = endless
    find_second(ranks).send_signal(signal.SIGTERM)
    code, _, errors = finish(process, 30)
    assert code == os.EX_TEMPFAIL
    assert "was ended by signal 15" in errors
    newest = sorted((output / "checkpoints").glob("step-*"))[-1]
    last = [line["step"] for line in read_metrics(output) if "loss" in line][-1]
    assert int(newest.name.removeprefix("step-")) == last


def test_they_end_with_the_process_that_was_started(endless):
    process, ranks, _ = endless
    process.kill()
    _, alive = psutil.wait_procs(ranks, timeout=20)
    assert not alive


def test_what_this_machine_cannot_have_is_refused_before_anything_starts(shards, tmp_path):
    given = [*arguments(shards, tmp_path, 20), "--processes"]
    with pytest.raises(UserError, match="--set batch=16: must be a multiple of the 3 processes"):
        run([*given, "3"])
    with pytest.raises(UserError, match="one process drives all cores"):
        run([*given, "2", "--device", "xla-spmd"])


def test_a_mistake_that_all_find_is_told_once_in_a_line(shards, tmp_path):
    given = [*arguments(shards, tmp_path, 20), "--processes", "2", "--set", "device_batch=5"]
    code, out, errors = finish(start(*given))
    assert (code, out) == (2, "")
    [line] = errors.splitlines()
    assert line.startswith("error: --set device_batch=5: must divide 8")
