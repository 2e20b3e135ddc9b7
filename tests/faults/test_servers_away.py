"""Both servers away in the middle of a training: it goes on, and what they missed is told later."""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager

from amazon_electra.flows.servers import stock
from amazon_electra.flows.servers.access import (
    HOST,
    build_mlflow_access,
    build_prefect_access,
    find_free_port,
    is_healthy,
)
from tests.flows.test_processes import read_pid
from tests.patience import eventually
from tests.served import CLEAN

AWAY_SECONDS = 10


class Server:
    """A Prefect or MLflow server that a test ends and starts as it likes."""

    def __init__(self, begin, health):
        self.port = find_free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._begin, self._health = begin, health
        self.start()

    def start(self):
        self._process = self._begin(self.port)
        eventually(lambda: is_healthy(self.url + self._health))

    def end(self):
        self._process.end()


@contextmanager
def both(store):
    prefect = Server(lambda port: stock.start_prefect_server(store, port), "/api/health")
    mlflow = Server(lambda port: stock.start_mlflow_server(store, port), "/health")
    try:
        yield prefect, mlflow
    finally:
        prefect.end()
        mlflow.end()


def toy(store, prefect, mlflow, ways):
    command = [sys.executable, "-m", "tests.flows.toy_graph", str(store), json.dumps(ways)]
    settings = {"PREFECT_API_URL": f"{prefect.url}/api", "MLFLOW_TRACKING_URI": mlflow.url}
    settings |= build_prefect_access(store) | build_mlflow_access(store)
    return subprocess.Popen(command, env={**CLEAN, **settings}, start_new_session=True)


def flow_states(store):
    """The states of runs in the Prefect server's database, oldest first."""
    with sqlite3.connect(store / "prefect" / "prefect.db") as database:
        rows = database.execute("select state_name from flow_run order by created")
        return [state for (state,) in rows]


def losses(mlflow):
    """Steps whose loss MLflow has, of the pre-training's run, and that run."""
    from mlflow import MlflowClient

    client = MlflowClient(mlflow.url)
    experiment = client.get_experiment_by_name("domain-adaptation")
    runs = client.search_runs([experiment.experiment_id], "status = 'FINISHED'")
    [run] = [run for run in runs if run.info.run_name == "pretraining"]
    history = client.get_metric_history(run.info.run_id, "loss")
    return sorted(metric.step for metric in history), run


def test_both_servers_away_for_a_while(tmp_path, monkeypatch):
    store, steps, gate = tmp_path / "store", AWAY_SECONDS, tmp_path / "gate"
    with both(store) as (prefect, mlflow):
        slow = {"steps": steps, "seconds_a_step": 1, "gate": str(gate)}
        flow = toy(store, prefect, mlflow, {"pretraining": slow})
        eventually(lambda: list(store.glob("toy-pretraining/*/metrics.jsonl")))
        [pid] = eventually(lambda: list(store.glob("toy-pretraining/*/pid")))
        job = read_pid(pid)
        prefect.end()
        mlflow.end()
        time.sleep(AWAY_SECONDS)
        assert read_pid(next(store.glob("toy-pretraining/*/pid"))) == job
        assert flow.poll() is None
        prefect.start()
        mlflow.start()
        gate.touch()
        assert flow.wait() == 0
        assert flow_states(store) == ["Completed"]
        again = toy(store, prefect, mlflow, {"pretraining": {"steps": steps}})
        assert again.wait() == 0, "sends what a slow machine had not sent at the end"
        for name, value in build_mlflow_access(store).items():
            monkeypatch.setenv(name, value)
        seen, run = losses(mlflow)
        assert seen == list(range(1, steps + 1))
        assert (run.info.status, run.data.metrics["steps"]) == ("FINISHED", steps)
