"""The numbers of a store as Prometheus reads them."""

import json
import subprocess
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from amazon_electra.flows.runs.lost_runs import mark_run
from amazon_electra.flows.runs.metrics import serve_metrics
from amazon_electra.flows.servers.health import find_free_port, is_healthy
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.registry import Registry, RegistryAway
from tests.patience import eventually


def scrape(port):
    """Every sample by its name and label."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("amazon_electra_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def publish(store, name, result, **files):
    stage = ExistingStage(name, 1, {"seed": len(files)})
    with store.lock_stage(stage) as folder:
        for file, content in files.items():
            (folder / f"{file}.json").write_text(json.dumps(content))
        store.publish(stage, result, seconds=2.5)
    return stage


def test_a_scrape_has_runs_stages_rows_and_the_champion(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    arms = [{"arm": "TF-IDF", "test": {"accuracy": 0.8}}, {"arm": "x", "test": {"accuracy": 0.9}}]
    results = {"metric": "accuracy", "arm": "TF-IDF", "arms": arms}
    publish(store, "corpus", {"read": 5})
    publish(store, "report", {})
    publish(store, "scores", {"read": 5, "scored": 4})
    model = publish(store, "model", {}, results=results)
    port = serve_metrics(store, "127.0.0.1", 0)
    assert scrape(port)["registry_up",] == 1, "there is no database yet"
    champion = {"version": "3", "model": model.fingerprint}
    listed = [Registry("sqlite:///x", "amazon-electra-stars")]
    monkeypatch.setattr("amazon_electra.flows.runs.metrics.list_registries", lambda uri: listed)
    monkeypatch.setattr(Registry, "get_by_alias", lambda self, alias: champion)
    (store.root / "runs" / "some-run").mkdir(parents=True)
    with mark_run(store, "some-run"):
        found = scrape(port)
    assert found["runs", "running"] == 1
    assert found["runs", "complete"] == 3, "the corpus, the report and the scores"
    assert found["stages", "corpus"] == 1
    assert found["stage_seconds", "corpus"] == 2.5
    assert found["rows_scored",] == 4
    assert found["registry_up",] == 1
    assert found["champion_version", "amazon-electra-stars"] == 3
    assert found["champion_test", "amazon-electra-stars"] == 0.8

    def refuse(uri):
        raise RegistryAway("no answer")

    monkeypatch.setattr("amazon_electra.flows.runs.metrics.list_registries", refuse)
    without = scrape(port)
    assert without["registry_up",] == 0
    assert without["stages", "corpus"] == 1


def test_the_command_knows_which_stages_end_a_run(tmp_path):
    """In a process that has imported nothing else."""
    store, port = Store(tmp_path / "store"), find_free_port()
    publish(store, "report", {})
    words = ["-m", "amazon_electra.flows.runs.metrics", str(store.root), "--port", str(port)]
    server = subprocess.Popen([sys.executable, *words])
    try:
        eventually(lambda: is_healthy(f"http://127.0.0.1:{port}/metrics"))
        assert scrape(port)["runs", "complete"] == 1
    finally:
        server.kill()
        server.wait()
