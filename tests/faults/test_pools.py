"""Data on one host, training on another: they have only two servers and a bucket in common. The
training host is lost and replaced, with the bytes of a run on one machine, and a run is cancelled.
"""

import pytest

from amazon_electra.flows.store.store import Store
from tests.faults.test_remote_store import compare
from tests.hosts import crash, serve_host, serve_shared
from tests.patience import eventually
from tests.postgresql import IS_HERE
from tests.s3_server import connect
from tests.served import electra

SETTINGS = {
    "pretraining": {"steps": 96, "settings": {"checkpoint_every": "32"}},
    "finetuning": {"seeds": [0], "tasks": ["polarity"]},
}
DUMP = {"paths": ["sample:600"]}
DATA = {"corpus", "vocabulary", "shards"}
TRAINING = {"pretraining", "finetuning"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    if not IS_HERE:
        pytest.skip("needs PostgreSQL, and root, which becomes its user")
    with serve_shared(tmp_path_factory.mktemp("pools")) as shared:
        yield shared


@pytest.fixture(scope="module")
def data(shared):
    with serve_host(shared, "data", "worker-cpu") as host:
        yield host


def serve_trainer(shared, name):
    return serve_host(shared, name, "worker-accelerator")


def test_a_lost_trainer_is_replaced(shared, data, tmp_path):
    served = shared.served
    with serve_trainer(shared, "trainer") as first:
        run = served.start("domain-adaptation", dump=DUMP, **SETTINGS)
        there = connect(shared.s3)
        eventually(
            lambda: there.glob(f"{shared.store}/pretraining/*/checkpoint.zip"),
            lambda: served.told(run),
        )
        first.lose()
        assert not there.glob(f"{shared.store}/pretraining/*/manifest.json"), "lost before the end"
        assert "pretraining" in first.list_made()
        assert not first.list_made() & DATA
    crash(served, run)
    with serve_trainer(shared, "other-trainer") as second:
        again = served.start("domain-adaptation", dump=DUMP, **SETTINGS)
        served.wait(again, "Completed")
        assert second.list_made() >= TRAINING
        assert not second.list_made() & DATA
    assert data.list_made() == DATA
    compare_with_local_run(shared, tmp_path)


def test_a_cancelled_run_ends_on_both_hosts(shared, data):
    served = shared.served
    with serve_trainer(shared, "third-trainer") as trainer:
        changed = {**SETTINGS, "pretraining": {"steps": 5000, "seed": 1}}
        run = served.start("domain-adaptation", dump=DUMP, **changed)
        eventually(trainer.list_made, lambda: served.told(run))
        served.cancel(run)
        served.wait(run, "Cancelled")
        eventually(lambda: not [p for p in trainer.list_processes() if is_job(p)])


def is_job(process):
    return "amazon_electra.flows.run_stage" in " ".join(process.cmdline())


def compare_with_local_run(shared, folder):
    """Compare what is in the bucket with what one machine makes that nobody disturbs."""
    chosen = ("pretraining.steps=96", "pretraining.checkpoint_every=32", "finetuning.seeds=0")
    sets = [f"--{s}" for s in (*chosen, "finetuning.tasks=polarity")]
    local = electra("run", "--dump", *DUMP["paths"], "--store", folder / "local", *sets)
    assert local.returncode == 0, local.stderr
    compare(Store(folder / "local"), Store(shared.store))
