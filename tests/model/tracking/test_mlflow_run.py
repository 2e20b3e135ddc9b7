"""The mirror into MLflow: where artifacts go, what is sent, addresses, a run that goes on later."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.servers.health import find_free_port
from model.tracking.mlflow_client import create_client
from model.tracking.mlflow_run import Tracking
from model.tracking.registry import Registry
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def heard(caplog):
    """What our own logger says, also after Prefect has set up the logging of this process."""
    ours = logging.getLogger("amazon_electra")
    caplog.set_level(logging.WARNING, ours.name)
    ours.addHandler(caplog.handler)
    yield caplog
    ours.removeHandler(caplog.handler)


def finished(tracking):
    assert tracking.wait_until_sent(PATIENCE_SECONDS)
    tracking.finish()
    return MlflowClient(tracking.uri)


def test_nothing_is_left_where_it_was_started(tmp_path, monkeypatch):
    place = tmp_path / "somewhere"
    place.mkdir()
    monkeypatch.chdir(place)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
    tracking.start("a run", {}, {})
    tracking.log_folder(model, "model")
    assert tracking.wait_until_sent(PATIENCE_SECONDS)
    Registry(tracking.uri).add_version(tracking.parent.id, "model", {"encoder": "x"})
    client = finished(tracking)
    assert [f.path for f in client.list_artifacts(tracking.parent.id)] == ["model"]
    assert os.listdir(place) == []
    assert list((tmp_path / "artifacts").rglob("config.json"))


def test_a_run_that_begins_again_is_the_same_one(tmp_path):
    ids = []
    for status in ("SCHEDULED", "FINISHED"):
        tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
        tracking.start("a run", {"a": 1}, {}, folder=tmp_path)
        assert tracking.wait_until_sent(PATIENCE_SECONDS)
        tracking.finish(status)
        ids.append(tracking.parent.id)
        assert MlflowClient(tracking.uri).get_run(ids[0]).info.status == status
    assert ids[0] == ids[1]


KILLED = """
import os, signal, sys
from alembic.ddl.impl import DefaultImpl
from model.tracking.mlflow_client import create_client
execute = DefaultImpl._exec
def kill_after(self, construct, *more, **named):
    execute(self, construct, *more, **named)
    if "CREATE TABLE _alembic_tmp_experiments" in str(construct):
        os.kill(os.getpid(), signal.SIGKILL)
DefaultImpl._exec = kill_after
create_client(sys.argv[1]).search_experiments()
"""


def test_a_database_whose_creation_was_killed_is_made_by_the_next_run(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    (tmp_path / "mlflow").mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, uri])
    assert killed.returncode == -signal.SIGKILL
    assert create_client(uri).get_experiment_by_name("x") is None


def test_what_did_not_arrive_is_not_taken_for_sent(tmp_path, monkeypatch):
    monkeypatch.setattr("model.tracking.mlflow_run.CLOSE_SECONDS", 0.1)
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text("a report")
    for uri, taken in (
        (f"http://127.0.0.1:{find_free_port()}", False),
        (f"sqlite:///{tmp_path}/mlflow.db", True),
    ):
        tracking = Tracking(uri)
        tracking.start("a run", {}, {})
        tracking.log_folder(report / "report.md", "")
        tracking.mark_logged(report)
        assert tracking.wait_until_sent(PATIENCE_SECONDS if taken else 0.5) is taken
        tracking.finish()
        assert tracking.is_logged(report) is taken


def test_a_folder_is_sent_once_to_each_run(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
    tracking.start("a run", {}, {})
    with tracking.follow_folder("a job", tmp_path, {}, {}) as run:
        for name in ("weights", "more"):
            (model / name).write_text(name)
            tracking.log_folder(model, "model")
            assert tracking.wait_until_sent(PATIENCE_SECONDS)
        tracking.log_folder(model, "model", run)
    client = finished(tracking)
    sent = [[f.path for f in client.list_artifacts(r.id, "model")] for r in (tracking.parent, run)]
    assert sent == [["model/weights"], ["model/more", "model/weights"]]


def test_an_artifact_on_this_machine_is_no_second_copy(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"x" * 1000)
    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
    tracking.start("a run", {}, {})
    tracking.log_folder(model, "model")
    tracking.log_folder(model / "weights", "")
    client = finished(tracking)
    artifacts = list((tmp_path / "artifacts").rglob("weights"))
    assert len(artifacts) == 2
    assert all(artifact.samefile(model / "weights") for artifact in artifacts)
    shutil.rmtree(model)
    shown = client.download_artifacts(tracking.parent.id, "model/weights")
    assert Path(shown).stat().st_size == 1000, "what MLflow shows outlives the stage"


def test_passwords_of_addresses_reach_neither_logs_nor_links(monkeypatch, heard):
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)  # it waits longer each time
    tracking = Tracking("postgresql+psycopg2://user:pass@word@nowhere/mlflow")
    tracking._sender.try_request(lambda: None)
    assert "postgresql+psycopg2://nowhere/mlflow" in heard.text
    assert "pass" not in heard.text
    tracking = Tracking("http://user:password@127.0.0.1:9")
    tracking._experiment_id = tracking.parent.id = "1"
    assert tracking.build_address() == "http://127.0.0.1:9/#/experiments/1/runs/1"


def test_lines_are_sent_once_and_system_metrics_with_them(tmp_path):
    """Also where a resumed job has cut its file: the lines that come again were sent already."""
    metrics, system = tmp_path / "metrics.jsonl", tmp_path / "system.jsonl"
    system.write_text(json.dumps({"step": 1, "time": 1.0, "system/cpu_percent": 97.5}) + "\n")

    def write_steps(*steps):
        lines = [json.dumps({"step": step, "time": step, "loss": step / 2}) for step in steps]
        metrics.write_text("".join(f"{line}\n" for line in lines) + '{"step": 99, "lo')

    for steps in ((1, 2), (1,), (1, 2, 3)):
        tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
        tracking.start("a run", {}, {}, folder=tmp_path / "parent")
        with tracking.follow_folder("a job", tmp_path, {}, {}) as run:
            write_steps(*steps)
        client = finished(tracking)
    sent = client.get_metric_history(run.id, "loss")
    assert [(metric.step, metric.value) for metric in sent] == [(1, 0.5), (2, 1.0), (3, 1.5)]
    [sample] = client.get_metric_history(run.id, "system/cpu_percent")
    assert (sample.step, sample.value) == (1, 97.5)
