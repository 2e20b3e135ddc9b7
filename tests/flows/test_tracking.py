"""The mirror into MLflow: where artifacts go, what a job takes of the machine, addresses, a run that goes on later."""

import json
import os
import subprocess
import sys
import time

from mlflow import MlflowClient

from flows import usage
from flows.processes import started
from flows.servers import free_port
from model.registry import Registry
from model.tracking import Tracking


def finished(tracking):
    assert tracking.settle(200)
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
    assert tracking.settle(60)
    Registry(tracking.uri).add(tracking.parent.id, "model", {"encoder": "x"})
    client = finished(tracking)
    assert [f.path for f in client.list_artifacts(tracking.parent.id)] == ["model"]
    assert os.listdir(place) == []
    assert list((tmp_path / "artifacts").rglob("config.json"))


def test_a_run_that_begins_again_is_the_same_one(tmp_path):
    ids = []
    for status in ("SCHEDULED", "FINISHED"):
        tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
        tracking.start("a run", {"a": 1}, {}, folder=tmp_path)
        assert tracking.settle(60)
        tracking.finish(status)
        ids.append(tracking.parent.id)
        assert MlflowClient(tracking.uri).get_run(ids[0]).info.status == status
    assert ids[0] == ids[1]


def test_system_metrics_are_of_the_job_and_all_below_it(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "FIRST_SECONDS", 1.0)
    burn = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    log = tmp_path / "log.txt"
    with started([sys.executable, "-c", burn], log) as child, usage.sampled(child.pid, tmp_path / usage.SAMPLES):
        deadline = time.monotonic() + 60
        while not (tmp_path / usage.SAMPLES).exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    [line] = [json.loads(line) for line in (tmp_path / usage.SAMPLES).read_text().splitlines()]
    assert line["step"] == 1
    assert line["system/cpu_percent"] > 2
    assert line["system/memory_megabytes"] > 10
    (tmp_path / "metrics.jsonl").write_text("")
    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
    tracking.start("a run", {}, {})
    with tracking.following("a job", tmp_path, {}, {}) as run:
        pass
    client = finished(tracking)
    [sent] = client.get_metric_history(run.id, "system/cpu_percent")
    assert (sent.step, sent.value) == (1, line["system/cpu_percent"])


def test_what_did_not_arrive_is_not_taken_for_sent(tmp_path, monkeypatch):
    monkeypatch.setattr("model.tracking.CLOSE_SECONDS", 0.1)
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text("a report")
    for uri, taken in ((f"http://127.0.0.1:{free_port()}", False), (f"sqlite:///{tmp_path}/mlflow.db", True)):
        tracking = Tracking(uri)
        tracking.start("a run", {}, {})
        tracking.log_folder(report / "report.md", "")
        tracking.remember_taken(report)
        assert tracking.settle(60 if taken else 0.5) is taken
        tracking.finish()
        assert tracking.has_taken(report) is taken


def test_a_folder_is_sent_once_to_each_run(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    tracking = Tracking(f"sqlite:///{tmp_path}/mlflow.db")
    tracking.start("a run", {}, {})
    with tracking.following("a job", tmp_path, {}, {}) as run:
        for name in ("weights", "more"):
            (model / name).write_text(name)
            tracking.log_folder(model, "model")
            assert tracking.settle(60)
        tracking.log_folder(model, "model", run)
    client = finished(tracking)
    sent = [[f.path for f in client.list_artifacts(r.id, "model")] for r in (tracking.parent, run)]
    assert sent == [["model/weights"], ["model/more", "model/weights"]]


def test_passwords_of_addresses_reach_neither_logs_nor_links(monkeypatch, heard):
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)  # it waits longer each time
    tracking = Tracking("postgresql+psycopg2://user:pass@word@nowhere/mlflow")
    tracking._attempt(lambda: None)
    assert "postgresql+psycopg2://nowhere/mlflow" in heard.text
    assert "pass" not in heard.text
    tracking = Tracking("http://user:password@127.0.0.1:9")
    tracking._experiment_id = tracking.parent.id = "1"
    assert tracking.address() == "http://127.0.0.1:9/#/experiments/1/runs/1"


def test_the_address_of_a_job_on_dataflow_is_found_in_what_beam_logs(tmp_path):
    address = "https://console.cloud.google.com/dataflow/jobs/us-central1/2026-01-01_00_00_00-123?project=p"
    said = f"INFO:root:To access the Dataflow monitoring console, please navigate to {address}"
    command = [sys.executable, "-c", f"import sys; print({said!r}, file=sys.stderr)"]
    with started(command, tmp_path / "log.txt") as child:
        assert list(child.progress()) == [{"link": address}]


def test_a_store_in_a_bucket_is_refused_by_name(tmp_path):
    command = [sys.executable, "-m", "flows.cli", "run", "--dump", "sample:100", "--store", "gs://bucket/store"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert done.returncode == 2
    assert done.stderr.startswith("error: store: gs://bucket/store: results go to a local folder")
    assert os.listdir(tmp_path) == []
