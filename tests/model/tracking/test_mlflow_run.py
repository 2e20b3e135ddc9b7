"""The mirror into MLflow: where artifacts go, what is sent, addresses, a server that was away."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient

from amazon_electra.flows.servers.access import find_free_port
from amazon_electra.model.tracking import mlflow_run
from amazon_electra.model.tracking.mlflow_run import FINGERPRINT, FLOW_RUN, Tracking
from amazon_electra.model.tracking.registry import Registry, RegistryAway
from tests.patience import PATIENCE_SECONDS, eventually


def finished(tracking, status="FINISHED"):
    assert tracking.wait_until_sent(PATIENCE_SECONDS)
    tracking.finish(status)
    return MlflowClient(tracking.uri)


def write_steps(folder, *steps):
    lines = [json.dumps({"step": step, "time": step, "loss": step / 2}) for step in steps]
    text = "".join(f"{line}\n" for line in lines) + '{"step": 99, "lo'
    (folder / "metrics.jsonl").write_text(text)


def read_losses(client, run):
    return [(metric.step, metric.value) for metric in client.get_metric_history(run, "loss")]


def test_nothing_is_left_where_it_was_started(tmp_path, mlflow_uri, monkeypatch):
    place, model = tmp_path / "somewhere", tmp_path / "model"
    place.mkdir()
    monkeypatch.chdir(place)
    model.mkdir()
    (model / "weights").write_bytes(b"x" * 1000)
    tracking = Tracking(mlflow_uri)
    tracking.start("a run", {}, {})
    assert tracking.wait_until_sent(PATIENCE_SECONDS)
    with pytest.raises(RegistryAway):
        Registry(mlflow_uri).add_version(tracking.parent.id, "model", {"model": "x"})
    tracking.log_folder(model, "model")
    tracking.log_folder(model / "weights", "")
    assert tracking.wait_until_sent(PATIENCE_SECONDS)
    Registry(mlflow_uri).add_version(tracking.parent.id, "model", {"encoder": "x"})
    client = finished(tracking)
    found = sorted(f.path for f in client.list_artifacts(tracking.parent.id))
    assert found == ["model", "weights"]
    assert os.listdir(place) == []
    artifacts = (tmp_path / "artifacts").rglob("weights")
    assert [artifact.samefile(model / "weights") for artifact in artifacts] == [True, True]
    shutil.rmtree(model)
    shown = client.download_artifacts(tracking.parent.id, "model/weights")
    assert Path(shown).stat().st_size == 1000, "what MLflow shows outlives the stage"


def test_a_flow_run_begun_again_is_the_same(mlflow_uri):
    ids = []
    for flow_run, status in (("one", "SCHEDULED"), ("one", "FINISHED"), ("other", "FINISHED")):
        tracking = Tracking(mlflow_uri)
        tracking.start("a run", {"a": 1}, {FLOW_RUN: flow_run})
        client = finished(tracking, status)
        ids.append(tracking.parent.id)
        assert client.get_run(ids[-1]).info.status == status
    assert ids[0] == ids[1] != ids[2]


def test_passwords_of_addresses_reach_neither_logs_nor_links(monkeypatch, heard):
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)  # it waits longer each time
    tracking = Tracking("postgresql+psycopg2://user:pass@word@nowhere/mlflow")
    assert not tracking._flush()
    assert "postgresql+psycopg2://nowhere/mlflow" in heard.text
    assert "pass" not in heard.text
    tracking = Tracking("http://user:password@127.0.0.1:9")
    tracking._experiment_id = tracking.parent.id = "1"
    assert tracking.build_address() == "http://127.0.0.1:9/#/experiments/1/runs/1"


def test_curves_are_sent_while_a_job_runs(tmp_path, mlflow_uri, monkeypatch):
    """Lines that come again, as a resumed job cut its file, are sent once."""
    monkeypatch.setattr(mlflow_run, "POLL_SECONDS", 0.1)
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")
    tracking, client = Tracking(mlflow_uri), MlflowClient(mlflow_uri)
    tracking.start("a run", {}, {})
    with suppress(ConnectionError), tracking.follow_folder("a job", tmp_path, {}, {}) as first:
        write_steps(tmp_path, 1, 2)
        eventually(lambda: first.id and len(read_losses(client, first.id)) == 2)
        raise ConnectionError("the job failed, and is tried again")
    write_steps(tmp_path, 1)
    with tracking.follow_folder("a job", tmp_path, {}, {}) as run:
        load = "system/cpu_utilization_percentage"
        eventually(lambda: client.get_metric_history(run.id, load))
        write_steps(tmp_path, 1, 2, 3)
    finished(tracking)
    assert run.id == first.id
    assert read_losses(client, run.id) == [(1, 0.5), (2, 1.0), (3, 1.5)]
    made = client.get_run(run.id)
    assert made.info.status == "FINISHED"
    assert made.data.tags["mlflow.parentRunId"] == tracking.parent.id


def test_what_mlflow_missed_is_mirrored_once(tmp_path, mlflow_uri, monkeypatch):
    monkeypatch.setattr(mlflow_run, "CLOSE_SECONDS", 0.1)
    tags, nested = {FINGERPRINT: "of-the-stage"}, []
    write_steps(tmp_path, 1, 2)
    away = Tracking(f"http://127.0.0.1:{find_free_port()}")
    away.start("a run", {}, {})
    with away.follow_folder("a job", tmp_path, {}, tags):
        pass
    away.finish()
    assert not away.wait_until_sent(0.1)
    monkeypatch.setattr(mlflow_run, "CLOSE_SECONDS", PATIENCE_SECONDS)
    for _ in range(2):
        tracking = Tracking(mlflow_uri)
        tracking.start("a run", {}, {})
        for _ in range(2):
            tracking.mirror_folder("a job", tmp_path, {"steps": 2}, tags, {"test.accuracy": 0.5})
        client = finished(tracking)
        [experiment] = client.search_experiments(filter_string="name = 'domain-adaptation'")
        query = f"tags.`{FINGERPRINT}` = 'of-the-stage'"
        runs = client.search_runs([experiment.experiment_id], query)
        nested.append(len(runs))
    assert nested == [1, 1]
    for run in runs:
        assert read_losses(client, run.info.run_id) == [(1, 0.5), (2, 1.0)]
        assert (run.info.status, run.data.metrics["test.accuracy"]) == ("FINISHED", 0.5)


def test_a_deleted_experiment_is_restored(mlflow_uri):
    client = finished_run = None
    for _ in range(2):
        tracking = Tracking(mlflow_uri)
        tracking.start("a run", {}, {})
        tracking.log_metrics({"pre-trained + TF-IDF · stars.f1@5": 0.5})
        client, finished_run = finished(tracking), tracking.parent
        [experiment] = client.search_experiments(filter_string="name = 'domain-adaptation'")
        client.delete_experiment(experiment.experiment_id)
    found = client.get_run(finished_run.id)
    assert found.info.status == "FINISHED"
    assert found.data.metrics == {"pre-trained - TF-IDF - stars.f1_at_5": 0.5}
