"""A run that a worker took and never began, on a real server: by that worker's heartbeats."""

import time

import pytest

from flows.runner.pools import worker_watch
from flows.runner.pools.worker_watch import HEARTBEATS, WORKER, WorkerWatch

pytestmark = pytest.mark.usefixtures("prefect_home")
POOL = "watched"


@pytest.fixture
def client():
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"), overwrite=True)
        yield client


def create_run(client, state, worker=""):
    from prefect import flow

    made = client.create_flow_run(flow(name="somebody's")(lambda: None), state=state)
    if worker:
        labels = {WORKER: worker}
        client.request("PATCH", f"/flow_runs/{made.id}/labels", json=labels)
    return client.read_flow_run(made.id)


def beat(client, name, interval):
    told = {"name": name, "heartbeat_interval_seconds": interval}
    client.request("POST", f"/work_pools/{POOL}/workers/heartbeat", json=told)


def test_a_run_is_lost_with_the_worker_that_took_it(client):
    from prefect.states import Pending

    watch, run = WorkerWatch(POOL, "corpus"), create_run(client, Pending(), "one")
    began, beats = time.monotonic(), 4
    for _ in range(beats):
        beat(client, "one", 1)
        beat(client, "other", 1)
        assert not watch.find_loss(client, run)
        time.sleep(1)
    while not (loss := watch.find_loss(client, run)):
        beat(client, "other", 1)
        time.sleep(0.2)
    assert loss == "the worker that took it has given no sign for 3 s"
    assert time.monotonic() - began > beats - 1 + HEARTBEATS


def test_a_run_that_no_worker_named_itself_on_is_lost_sooner_than_one_that_is_begun(
    client, monkeypatch
):
    from prefect.states import Pending, Running, Scheduled

    monkeypatch.setattr(worker_watch, "NAMING_SECONDS", 0.3)
    beat(client, "one", 30)
    states = (Pending(), ""), (Pending(), "one"), (Running(), "one"), (Scheduled(), "")
    runs = [create_run(client, state, worker) for state, worker in states]
    watches = [WorkerWatch(POOL, "corpus") for _ in runs]
    for watch, run in zip(watches, runs, strict=True):
        assert not watch.find_loss(client, run)
    time.sleep(0.5)
    told = [w.find_loss(client, run) for w, run in zip(watches, runs, strict=True)]
    assert told == ["the worker that took it never began it", "", "", ""]
