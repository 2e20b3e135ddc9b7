"""Several processes train as one does, and end together."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.model import runtime
from amazon_electra.model.processes import LOST, _build_error
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.model.pretraining.adaptation.published import train, write_all
from tests.model.pretraining.runs import SHAPE, list_words, pretrain
from tests.model.synthetic_shards import write_shards
from tests.refusals import refuses

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
SETTINGS = {"objective": "electra", "dropout": 0, "validate_every": 6, "checkpoint_every": 6}
LONG = SHAPE | {"log_every": 5, "checkpoint_every": 10, "precision": "fp32"}
STEPS = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = write_all(tmp_path_factory.mktemp("made"))
    write_shards(folder / "dev", sequences=70, split="dev")
    return folder


def start(made, output, *words, steps=STEPS, **settings):
    """Train without dropout, which each process draws by itself, and measure on dev shards."""
    words = ("--validation", made / "dev", *words)
    return train(made, output, *words, steps=steps, **SETTINGS | settings)


def read_weights(output, step):
    tensors = load_file(runtime.build_path(output / "checkpoints", step) / runtime.TENSORS)
    return {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}


def assert_same_weights(first, second, step):
    of_both = (read_weights(output, step) for output in (first, second))
    torch.testing.assert_close(*of_both, atol=1e-5, rtol=0)


def test_two_processes_train_as_one_does(made, tmp_path):
    """Losses, weights and measures on dev shards are the same."""
    alone, both = tmp_path / "alone", tmp_path / "both"
    start(made, alone)
    assert start(made, both, "--processes", "2")["sequences"] == 8 * STEPS
    for step in (6, 12):
        assert_same_weights(both, alone, step)
    logs = [read_metrics(folder) for folder in (both, alone)]
    for ours, theirs in zip(*logs, strict=True):
        names = [name for name in theirs if "loss" in name or name.endswith("accuracy")]
        assert {n: ours[n] for n in names} == pytest.approx({n: theirs[n] for n in names}, rel=1e-3)
    shutil.rmtree(runtime.build_path(both / "checkpoints", 12))
    start(made, both)
    assert_same_weights(both, alone, 12)


def test_two_processes_go_on_to_the_same_bits(made, tmp_path):
    """Dropout included, which the pass that orders DDP's buckets must not draw from."""
    start(made, tmp_path, "--processes", "2", dropout=0.1)
    whole = read_weights(tmp_path, 12)
    shutil.rmtree(runtime.build_path(tmp_path / "checkpoints", 12))
    start(made, tmp_path, "--processes", "2", dropout=0.1)
    resumed = read_weights(tmp_path, 12)
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())


@pytest.mark.slow
def test_torchrun_starts_them_too(made, tmp_path):
    pretrain(made / "shards", tmp_path / "one", steps=10, **LONG)
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *meeting]
    words = list_words(made / "shards", tmp_path / "two", steps=10, **LONG)
    subprocess.run(
        [*command, "-m", "amazon_electra.model.pretrain", *words], env=ENVIRONMENT, check=True
    )
    assert_same_weights(tmp_path / "two", tmp_path / "one", 10)


@pytest.fixture
def endless(made, tmp_path):
    """Return two processes in the middle of a training, and their --output."""
    words = list_words(made / "shards", tmp_path, steps=1_000_000, **LONG)
    command = [sys.executable, "-m", "amazon_electra.model.pretrain", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, "--processes", "2"], env=ENVIRONMENT, cwd=ROOT, **pipes)
    while not runtime.list_checkpoints(tmp_path / "checkpoints"):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    ranks = [p for p in children if "spawn_main" in " ".join(p.cmdline())]
    assert len(ranks) == 2
    yield process, ranks, tmp_path
    process.kill()
    psutil.wait_procs(ranks, timeout=30)


def find_second(ranks):
    """Return the process of rank 1, which is started after rank 0."""
    return max(ranks, key=lambda p: (p.create_time(), p.pid))


@pytest.mark.slow
def test_when_one_process_is_killed_all_end(endless):
    process, ranks, _ = endless
    find_second(ranks).kill()
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (os.EX_TEMPFAIL, "")
    shown = [line for line in errors.splitlines() if "rror" in line]
    assert shown == [
        "error: process 2 of 2 was ended by signal 9; the same command continues from the last "
        "checkpoint"
    ]
    assert not any(p.is_running() for p in ranks)


@pytest.mark.slow
def test_told_to_end_they_write_a_checkpoint(endless):
    process, ranks, output = endless
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert not any(p.is_running() for p in ranks)
    newest = runtime.list_checkpoints(output / "checkpoints")[-1]
    last = [line["step"] for line in read_metrics(output) if "loss" in line][-1]
    assert runtime.load_state(newest).step == last


@pytest.mark.parametrize(
    ("codes", "first", "kind", "message"),
    [
        ((143, -9), 1, TransientError, "process 2 of 2 was ended by signal 9"),
        ((LOST, 2), 0, UserError, "no room"),
        ((LOST, 1), 0, JobFailed, "process 2 of 2: no room"),
        ((0, os.EX_TEMPFAIL), 1, TransientError, "process 2 of 2: no room"),
        ((LOST, LOST), 1, TransientError, "lost each other"),
        ((2, 2), 1, SystemExit, "2"),
        ((143, 143), 1, TransientError, "process 2 of 2 was ended by signal 15"),
    ],
)
def test_the_first_cause_is_told(tmp_path, codes, first, kind, message):
    (tmp_path / "1.json").write_text('{"message": "no room"}')
    error = _build_error(codes, first, tmp_path)
    assert type(error) is kind
    assert message in str(error)


def test_what_this_machine_cannot_have_is_refused(made, tmp_path):
    with refuses("--batch 8"):
        pretrain(made / "shards", tmp_path, "--processes", 3, **SHAPE)
    with refuses("--processes 2"):
        pretrain(made / "shards", tmp_path, "--processes", 2, "--device", "xla-spmd", **SHAPE)
