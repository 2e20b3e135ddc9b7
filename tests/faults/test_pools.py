"""Runs whose stages are made by workers of two pools on hosts of their own. They have only two
servers and a bucket in common: the training host is lost and replaced, with the bytes of a run on
one machine, and a run is cancelled.
"""

import pytest

from amazon_electra.flows.store.store import Store
from tests.faults.test_remote_store import compare
from tests.hosts import read_children, serve_host, serve_shared
from tests.patience import eventually
from tests.postgresql import IS_HERE
from tests.s3_server import connect
from tests.served import electra

SETTINGS = {
    "pretraining": {"steps": 96, "settings": {"checkpoint_every": "32"}},
    "finetuning": {"seeds": [0], "tasks": ["polarity"]},
}
DUMP = {"paths": ["sample:600"]}
DATA = {"corpus", "vocabulary", "shards", "dev-shards"}
TRAINING = {"pretraining", "finetuning"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    if not IS_HERE:
        pytest.skip("needs PostgreSQL, and root, which becomes its user")
    with serve_shared(tmp_path_factory.mktemp("pools")) as shared:
        yield shared


@pytest.fixture(scope="module", autouse=True)
def flows(shared):
    with serve_host(shared, "flows", "worker-flows") as host:
        yield host


@pytest.fixture(scope="module")
def data(shared):
    with serve_host(shared, "data", "worker-cpu") as host:
        yield host


def serve_trainer(shared, name):
    return serve_host(shared, name, "worker-accelerator")


def find_running(served, run, name):
    """The child of a run that makes a stage of this title now."""
    children = read_children(served, run)
    return next((c for c in children if c.name.startswith(name) and c.state.is_running()), None)


def test_each_pool_makes_its_stages_and_a_lost_trainer_is_replaced(shared, flows, data, tmp_path):
    from mlflow import MlflowClient
    from prefect.states import Crashed

    served = shared.served
    with serve_trainer(shared, "trainer") as first:
        run = served.start("domain-adaptation", dump=DUMP, **SETTINGS)
        there = connect(shared.s3)
        eventually(
            lambda: there.glob(f"{shared.store}/pretraining/*/checkpoints/step-*/state.json"),
            lambda: served.told(run),
        )
        first.lose()
        lost = find_running(served, run, "pre-training")
        assert not there.glob(f"{shared.store}/pretraining/*/manifest.json"), "lost before the end"
        assert "pretraining" in first.list_made()
        assert not first.list_made() & DATA
    with serve_trainer(shared, "other-trainer") as second:
        with served.client() as client:  # as an automation does after two minutes
            client.set_flow_run_state(lost.id, Crashed(message="no heartbeat of life"), force=True)
        served.wait(run, "Completed")
        assert second.list_made() >= TRAINING
        assert not second.list_made() & DATA
    assert data.list_made() == DATA
    assert flows.list_made() == {"report"}

    compare_with_local_run(shared, tmp_path)

    pools = {child.name: child.work_pool_name for child in read_children(served, run)}
    assert {pools[name] for name in ("corpus", "vocabulary", "shards", "dev shards")} == {"cpu"}
    assert pools["pre-training"] == "accelerator"
    client = MlflowClient(shared.compose.mlflow)
    experiment = client.get_experiment_by_name("domain-adaptation")
    runs = client.search_runs([experiment.experiment_id])
    [parent] = [one for one in runs if one.data.tags.get("mlflow.parentRunId") is None]
    nested = [one for one in runs if one.info.run_name == "pre-training"]
    assert {one.data.tags["mlflow.parentRunId"] for one in nested} == {parent.info.run_id}
    logged = {part.path for one in nested for part in client.list_artifacts(one.info.run_id)}
    assert "discriminator" in logged


def test_a_cancelled_run_ends_on_both_hosts(shared, data):
    served = shared.served
    with serve_trainer(shared, "third-trainer") as trainer:
        changed = {**SETTINGS, "pretraining": {"steps": 5000, "seed": 1}}
        run = served.start("domain-adaptation", dump=DUMP, **changed)
        eventually(trainer.list_made, lambda: served.told(run))
        served.cancel(run)
        served.wait(run, "Cancelled")
        [child] = [c for c in read_children(served, run) if c.name.startswith("pre-training")]
        served.wait(str(child.id), "Cancelled")
        eventually(lambda: not [p for p in trainer.list_processes() if is_job(p)])


def is_job(process):
    return "amazon_electra.model.pretrain" in " ".join(process.cmdline())


def compare_with_local_run(shared, folder):
    """Compare what is in the bucket with what one machine makes that nobody disturbs."""
    chosen = ("pretraining.steps=96", "pretraining.checkpoint_every=32", "finetuning.seeds=0")
    sets = [w for s in (*chosen, "finetuning.tasks=polarity") for w in ("--set", s)]
    local = electra("run", "--dump", *DUMP["paths"], "--store", folder / "local", *sets)
    assert local.returncode == 0, local.stderr
    compare(Store(folder / "local"), Store(shared.store))
