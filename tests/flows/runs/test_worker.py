"""A worker that is stopped hands its runs back, and another one continues them."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments import run_deployment
from prefect.deployments.runner import EntrypointType

from tests.flows.runs import ended_flow
from tests.patience import eventually

POOL = "stopped"


@pytest.fixture
def start_worker(prefect_home):
    """Starts a worker of the pool."""
    started = []

    def start():
        words = [
            sys.executable,
            "-m",
            "amazon_electra.flows.runs.worker",
            "--pool",
            POOL,
            "--limit",
            "2",
        ]
        fast = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_WORKER_PREFETCH_SECONDS": "1"}
        started.append(subprocess.Popen(words, env=os.environ | fast))
        return started[-1]

    yield start
    for worker in started:
        worker.terminate()  # killed, it would leave Prefect's worker and its run behind
        try:
            worker.wait(timeout=60)
        except subprocess.TimeoutExpired:
            for one in [*psutil.Process(worker.pid).children(recursive=True), worker]:
                one.kill()


@pytest.mark.slow
def test_a_stopped_worker_leaves_no_run_running(start_worker, tmp_path, monkeypatch):
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"), overwrite=True)
    parameters = {"store": str(tmp_path), "seconds": 3600}
    ended_flow.wait.to_deployment(
        name=POOL,
        work_pool_name=POOL,
        parameters=parameters,
        entrypoint_type=EntrypointType.MODULE_PATH,
    ).apply()
    run = run_deployment(f"ended/{POOL}", timeout=0, as_subflow=False)
    first = start_worker()

    def read():
        with get_client(sync_client=True) as client:
            return client.read_flow_run(run.id)

    eventually(lambda: list(tmp_path.glob(f"runs/{run.id}/process.lock")))
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=60) == 0
    assert read().state.name == "AwaitingRetry"
    begun = read().run_count
    start_worker()
    eventually(lambda: read().run_count > begun and read().state.is_running())
