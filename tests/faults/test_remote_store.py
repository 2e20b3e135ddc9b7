"""The whole graph on a store in a bucket: the fingerprints and the model of a local run, although
the first host is lost in the middle of pre-training and the server goes away for half a minute.
"""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from amazon_electra.flows.store.store import Store
from tests.patience import eventually
from tests.s3_server import BUCKET, connect, serve_s3
from tests.served import CLEAN

SETTINGS = (
    "pretraining.steps=96",  # on any machine a checkpoint is in the bucket before the last step
    "pretraining.checkpoint_every=32",
    "finetuning.seeds=0",
    "finetuning.tasks=polarity",
)
ADDRESS = f"s3://{BUCKET}/runs"
AWAY_SECONDS = 30


def command(store):
    words = [sys.executable, "-m", "amazon_electra.flows.cli.main", "run", "--dump", "sample:600"]
    return [*words, "--store", str(store), *(f"--{s}" for s in SETTINGS)]


def host(server, folder):
    """The environment of a host with nothing of its own yet, on which one thread trains."""
    own = {"XDG_STATE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return {**CLEAN, **server.environment(), **own}


@pytest.fixture
def s3(tmp_path):
    with serve_s3(tmp_path / "s3") as server:
        yield server


def test_a_lost_host_and_a_lost_server_change_nothing(tmp_path, s3, monkeypatch):
    local = subprocess.run(
        command(tmp_path / "local"), env=host(s3, tmp_path / "x"), capture_output=True, text=True
    )
    assert local.returncode == 0, local.stderr

    first = subprocess.Popen(
        command(ADDRESS),
        env=host(s3, tmp_path / "first"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    there = connect(s3)
    eventually(
        lambda: there.glob(f"{ADDRESS}/pretraining/*/checkpoint.zip"),
        lambda: first.poll() is not None and first.stderr.read(),
    )
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not there.glob(f"{ADDRESS}/pretraining/*/manifest.json"), "lost before it was done"

    second = subprocess.Popen(
        command(ADDRESS), env=host(s3, tmp_path / "second"), stderr=subprocess.PIPE, text=True
    )
    steps = eventually(
        lambda: read_steps(tmp_path / "second"),
        lambda: second.poll() is not None and second.stderr.read(),
    )
    s3.kill()
    threading.Timer(AWAY_SECONDS, s3.start).start()
    _, errors = second.communicate()
    assert second.returncode == 0, errors
    assert steps[0] > 0, "it went on from a checkpoint of the first host"

    for name, value in host(s3, tmp_path / "second").items():
        monkeypatch.setenv(name, value)
    compare(Store(tmp_path / "local"), Store(ADDRESS))


def read_steps(state):
    """What pre-training on a host reported of its progress, in its own log."""
    log = next(state.glob("*/*/pretraining/*/log.txt"), None)
    found = log.read_text().splitlines() if log else []
    told = [line.removeprefix("PROGRESS ") for line in found if line.startswith("PROGRESS ")]
    return [json.loads(line)["done"] for line in told]


def compare(local, remote):
    """The same stages, and the same bytes of every file of data and weights."""
    one, other = ({m["fingerprint"]: m for m in s.list_manifests()} for s in (local, remote))
    assert one.keys() == other.keys()
    for fingerprint, manifest in one.items():
        listed = [
            {f["path"]: f["sha256"] for f in m["files"] if f["path"].endswith(DATA)}
            for m in (manifest, other[fingerprint])
        ]
        assert listed[0] == listed[1], manifest["title"]


DATA = (".parquet", ".safetensors", "tokenizer.json", "punkt.json")
