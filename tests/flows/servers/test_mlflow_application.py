"""The doors of the MLflow server that `up` and compose start, on a real one."""

import json
import os
import urllib.error
import urllib.request
from base64 import b64encode
from functools import partial
from pathlib import Path

import pytest

from amazon_electra.flows.servers.health import find_free_port, is_healthy, wait_until_healthy
from amazon_electra.flows.servers.mlflow_server import choose_artifact_place, start_mlflow_server
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_run import Tracking
from amazon_electra.model.tracking.registry import Registry
from tests.patience import PATIENCE_SECONDS

NAMES = {"MLFLOW_TRACKING_USERNAME": "electra", "MLFLOW_TRACKING_PASSWORD": "a-long-password-123"}
WORD = b64encode(":".join(NAMES.values()).encode()).decode()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(str(tmp_path_factory.mktemp("mlflow") / "store"))


@pytest.fixture(scope="module")
def address(store):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (NAMES | {"MLFLOW_DEPLOYMENTS_TARGET": "http://127.0.0.1:1"}).items():
            patch.setenv(name, value)
        port = find_free_port()
        server = start_mlflow_server(store.root, port)
        address = f"http://127.0.0.1:{port}"
        wait_until_healthy("MLflow", server, partial(is_healthy, f"{address}/health"))
        yield address
        server.end()


def ask(address, path, body=None, method=None, **headers):
    """The status and the text of an answer to one who has the password."""
    data = json.dumps(body).encode() if isinstance(body, dict | list | str) else body
    content = {"Content-Type": "application/json"} if data else {}
    request = urllib.request.Request(
        address + path, data, {"Authorization": f"Basic {WORD}", **content, **headers}
    )
    request.method = method or ("POST" if data else "GET")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


CREATE = "/api/2.0/mlflow/experiments/create"
SPELLINGS = {
    "plain": lambda place: {"name": "plain", "artifact_location": place},
    "camel case": lambda place: {"name": "camel", "artifactLocation": place},
    "JSON in JSON": lambda place: json.dumps({"name": "json", "artifact_location": place}),
    "path": lambda place: {"name": "path", "artifact_location": place.removeprefix("file://")},
    "UTF-16": lambda place: json.dumps({"name": "16", "artifact_location": place}).encode("utf-16"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_experiment_keeps_its_files_outside_of_the_stores_artifacts(address, tmp_path, spelling):
    folder = tmp_path / "attacker"
    (folder / "secret").mkdir(parents=True)
    (folder / "secret" / "key.txt").write_text("a secret")
    status, answer = ask(address, CREATE, SPELLINGS[spelling](f"file://{folder}"))
    if status == 200:  # the attack, as it was: a link into whatever the server's user can read
        made = json.loads(answer)["experiment_id"]
        run = ask(address, "/api/2.0/mlflow/runs/create", {"experiment_id": made})[1]
        run = json.loads(run)["run"]["info"]["run_id"]
        (folder / run).mkdir(exist_ok=True)
        os.symlink(folder / "secret", folder / run / "artifacts")
        status, answer = ask(address, f"/get-artifact?run_id={run}&path=key.txt")
    assert status in (400, 403), answer
    assert "a secret" not in answer


def test_a_version_has_no_source_outside_of_its_run(address, store):
    made = {"name": "spy"}
    assert ask(address, "/api/2.0/mlflow/registered-models/create", made)[0] == 200
    for source in (
        "file:///etc",
        "s3://bucket/key",
        "http://127.0.0.1:1/",
        "mlflow-artifacts:/../x",
    ):
        version = {"name": "spy", "source": source}
        assert ask(address, "/api/2.0/mlflow/model-versions/create", version)[0] in (400, 403)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/ajax-api/3.0/mlflow/assistant/config"),
        ("PUT", "/ajax-api/3.0/mlflow/assistant/config"),
        ("POST", "/ajax-api/3.0/mlflow/assistant/message"),
        ("POST", "/ajax-api/3.0/mlflow/assistant/skills/install"),
        ("POST", "/ajax-api/2.0/mlflow/gateway-proxy"),
        ("POST", "/api/3.0/mlflow/gateway/endpoints/create"),
        ("POST", "/api/2.0/mlflow/webhooks"),
        ("POST", "/api/3.0/mlflow/workspaces"),
        ("POST", "/ajax-api/3.0/mlflow/jobs/"),
        ("POST", "/ajax-api/3.0/mlflow/scorer/invoke"),
        ("POST", "/ajax-api/3.0/mlflow/issues/invoke"),
        ("POST", "/ajax-api/3.0/mlflow/genai/evaluate/invoke"),
    ],
)
def test_what_starts_programs_or_asks_other_hosts_is_refused(address, method, path):
    body = {} if method != "GET" else None
    status, answer = ask(address, path, body, method)
    assert status == 403, answer


def test_the_page_of_runs_is_answered_that_there_is_no_gateway(address):
    """An error would be shown on the page."""
    path = "/ajax-api/2.0/mlflow/gateway-proxy?gateway_path=api%2F2.0%2Fendpoints%2F"
    status, answer = ask(address, path)
    assert (status, json.loads(answer)) == (200, {"endpoints": []})


@pytest.mark.parametrize(
    ("origin", "is_own"),
    [
        ("http://127.0.0.1:9999", False),
        ("http://localhost:9999", False),
        ("http://evil.example", False),
        ("null", False),
        ("OWN", True),
        ("", True),
    ],
)
def test_only_its_own_pages_read_and_change_it(address, origin, is_own):
    header = {"Origin": address if origin == "OWN" else origin} if origin else {}
    expected = 200 if is_own else 403
    assert ask(address, CREATE, {"name": f"of {origin}"}, **header)[0] == expected
    assert ask(address, "/api/2.0/mlflow/experiments/get?experiment_id=0", **header)[0] == expected
    put = "/api/2.0/mlflow-artifacts/artifacts/0/a.txt"
    assert ask(address, put, b"text", "PUT", **header)[0] == expected


def log_model(tracking, folder):
    tracking.start("a run", {}, {})
    tracking.log_folder(folder, "model")
    assert tracking.wait_until_sent(PATIENCE_SECONDS)
    Registry(tracking.uri).add_version(tracking.parent.id, "model", {"encoder": folder.name})
    tracking.finish()


@pytest.mark.parametrize("way", ["database", "server", "elsewhere"])
def test_a_process_without_the_stores_files_gets_the_champion(
    address, store, tmp_path, monkeypatch, way
):
    """Also of a run that had no server, and of an older store: its places are files."""
    for name, value in NAMES.items():
        monkeypatch.setenv(name, value)
    model = tmp_path / way
    model.mkdir()
    (model / "MLmodel").write_text(f"flavors: {{{way}: 1}}")
    uri = f"sqlite:///{store.root}/mlflow/mlflow.db" if way == "database" else address
    place = choose_artifact_place(uri, store)
    if way == "server":
        monkeypatch.setattr(
            "amazon_electra.flows.servers.mlflow_server.find_running_servers",
            lambda _: {"mlflow": address},
        )
        place = choose_artifact_place(uri, store)
        assert place
    log_model(Tracking(uri, place), model)
    registry = Registry(address)
    number = registry.resolve_version(str(len(registry.list_tags())))
    registry.promote(number, "the best")
    assert registry.get_by_alias("champion")["source"].startswith("mlflow-artifacts:")
    copied, _ = registry.copy_model("champion", None, tmp_path / "copied")
    assert (copied / "MLmodel").read_bytes() == (model / "MLmodel").read_bytes()
    kept = [
        path
        for path in store.root.rglob("MLmodel")
        if path.read_bytes() == (copied / "MLmodel").read_bytes()
    ]
    assert [path.samefile(model / "MLmodel") for path in kept] == [way != "elsewhere"]


def test_a_model_whose_files_are_gone_is_no_empty_folder(address, store, tmp_path, monkeypatch):
    for name, value in NAMES.items():
        monkeypatch.setenv(name, value)
    tracking = Tracking(address)
    tracking.start("a run without files", {}, {})
    tracking.log_folder(Path(__file__), "model")
    assert tracking.wait_until_sent(PATIENCE_SECONDS)
    number = Registry(address).add_version(tracking.parent.id, "model", {"encoder": "gone"})
    tracking.finish()
    [kept] = (store.root / "mlflow" / "artifacts").rglob(Path(__file__).name)
    kept.unlink()
    with pytest.raises(ValueError, match="mlflow-artifacts:/"):
        Registry(address).copy_model(None, number, tmp_path / "copied")
