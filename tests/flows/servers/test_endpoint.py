"""`amazon-electra serve`: requests over HTTP, while champions change."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from mlflow import MlflowClient
from starlette.testclient import TestClient

from amazon_electra.flows.servers.endpoint import Champions, Limits, build_app
from amazon_electra.flows.servers.health import find_free_port
from amazon_electra.model.tracking.registry import Registry
from amazon_electra.model.tracking.served_model import write_served_model
from tests.beam_jobs.scoring.models import LABELS, VECTORS, expect, write_network

TOKEN = "a-token-of-the-test"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
TEXTS = ["good", "very good not bad fine", "bad"]


def register(
    client: MlflowClient,
    uri: str,
    experiment: str,
    folder: Path,
    sign: int,
    name: str = "amazon-electra",
) -> None:
    """Register a toy network, or one whose logits have the other sign, as the next version."""
    write_network(folder / "model", vectors=VECTORS * np.float32(sign))
    write_served_model(folder / "model", folder / "served")
    run = client.create_run(experiment).info.run_id
    client.log_artifacts(run, str(folder / "served"), "model")
    Registry(uri, name).add_version(run, "model", {"model": folder.name})


def create_registry(folder: Path) -> tuple[str, MlflowClient, str]:
    """Return the address, a client and an experiment of a registry with two versions, the first of
    them the champion.
    """
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(uri)  # other tests of the process have their own tracking address
    experiment = client.create_experiment("models", artifact_location=str(folder / "artifacts"))
    for number, sign in enumerate((1, -1)):
        register(client, uri, experiment, folder / f"v{number}", sign)
    Registry(uri).promote("1", "by hand")
    return uri, client, experiment


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return create_registry(tmp_path_factory.mktemp("registry"))[0]


def open_client(uri: str) -> tuple[Champions, TestClient]:
    """Return the champions of a registry, and a client of their server."""
    champions = Champions(uri, "fp32", threads=2)
    assert champions.take_over() == {}
    app = build_app(champions, TOKEN, Limits(body_bytes=20_000, texts=5))
    return champions, TestClient(app, headers=AUTHORIZED)


@pytest.fixture(scope="module")
def client(uri):
    _, client = open_client(uri)
    with client:
        yield client


def test_plain_json_has_the_probabilities_of_score_and_a_reason_where_there_is_none(client):
    answer = client.post("/classify", json={"texts": [*TEXTS[:2], None, 5]}).json()
    assert (answer["model"], answer["version"]) == ("amazon-electra", "1")
    *labelled, none, number = answer["results"]
    for text, result in zip(TEXTS, labelled, strict=False):
        expected = expect(text)
        assert list(result["probabilities"]) == LABELS
        np.testing.assert_allclose(list(result["probabilities"].values()), expected, atol=1e-6)
        assert result["label"] == LABELS[expected.argmax()]
    assert [none, number] == [
        {"label": None, "reason": "no text"},
        {"label": None, "reason": "text is not a string"},
    ]


def infer(client, data, path="/v2/models/amazon-electra/infer", **changes):
    tensor = {"name": "text", "shape": [len(data)], "datatype": "BYTES", "data": data, **changes}
    return client.post(path, json={"id": "7", "inputs": [tensor]})


def test_the_open_inference_protocol(client):
    about = client.get("/v2/models/amazon-electra").json()
    assert [tensor["shape"] for tensor in about["outputs"]] == [[-1], [-1, 3]]
    answer = infer(client, TEXTS, "/v2/models/amazon-electra/versions/1/infer").json()
    assert (answer["id"], answer["model_version"]) == ("7", "1")
    label, probabilities = answer["outputs"]
    found = np.reshape(probabilities["data"], probabilities["shape"])
    np.testing.assert_allclose(found, [expect(text) for text in TEXTS], atol=1e-6)
    assert label["data"] == [LABELS[row.argmax()] for row in found]


@pytest.mark.parametrize(
    ("send", "status", "names"),
    [
        (lambda client: infer(client, ["good", None]), 400, "inputs.0.data.1"),
        (lambda client: infer(client, ["good"], shape=[3]), 400, "shape"),
        (lambda client: infer(client, ["good"], datatype="FP32"), 400, "datatype"),
        (lambda client: infer(client, ["good"] * 6), 413, "at most 5"),
        (lambda client: client.post("/classify", json={"texts": ["x" * 30_000]}), 413, "20,000"),
        (lambda client: client.post("/classify", content="[" * 9_000), 400, "body"),
        (lambda client: client.post("/classify", json={"texts": "good"}), 400, "texts"),
        (lambda client: infer(client, ["good"], "/v2/models/other/infer"), 404, "other"),
        (
            lambda client: infer(client, ["good"], "/v2/models/amazon-electra/versions/9/infer"),
            404,
            "9",
        ),
    ],
)
def test_a_request_that_is_wrong_is_refused_in_words(client, send, status, names):
    answer = send(client)
    assert answer.status_code == status
    assert names in answer.json()["detail"]


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer x", f"Basic {TOKEN}"])
def test_without_the_token_only_health_answers(client, header):
    client = TestClient(client.app)
    headers = {"Authorization": header} if header else {}
    for path in ("/v2", "/v2/models/amazon-electra"):
        assert client.get(path, headers=headers).status_code == 401
    assert client.post("/classify", headers=headers, json={"texts": TEXTS}).status_code == 401
    assert client.get("/v2/health/ready", headers=headers).status_code == 200


def test_a_new_task_is_served_once_it_has_a_champion(tmp_path):
    uri, registered, experiment = create_registry(tmp_path)
    champions, client = open_client(uri)
    other = Registry(uri, "amazon-electra-other")

    def ask() -> int:
        body = {"model": other.name, "texts": TEXTS}
        return client.post("/classify", json=body).status_code

    with client:
        register(registered, uri, experiment, tmp_path / "other", -1, other.name)
        assert champions.take_over() == {}
        assert ask() == 404, "no version is champion"
        other.promote("1", "by hand")
        run = registered.get_model_version(other.name, "1").run_id
        [network] = (tmp_path / "artifacts" / run).rglob("model.onnx")
        network.rename(tmp_path / "model.onnx")
        assert list(champions.take_over()) == [other.name]
        assert ask() == 404, "it cannot be loaded"
        assert client.post("/classify", json={"texts": TEXTS}).json()["version"] == "1"
        (tmp_path / "model.onnx").rename(network)
        assert champions.take_over() == {}
        assert ask() == 200
        unnamed = client.post("/classify", json={"texts": TEXTS})
        assert (unnamed.status_code, other.name in unnamed.text) == (400, True)


@pytest.mark.slow
def test_no_request_is_lost_while_champions_change(uri, tmp_path):
    """1,000 requests, ten promotions and one SIGTERM; each answer is that of the version named."""
    port = find_free_port()
    words = ["serve", "--port", str(port), "--refresh", "0.1", "--store", str(tmp_path)]
    environment = os.environ | {"MLFLOW_TRACKING_URI": uri, "AMAZON_ELECTRA_TOKEN": TOKEN}
    child = subprocess.Popen(
        [sys.executable, "-m", "amazon_electra.flows.cli.main", *words], env=environment
    )
    base, registry = f"http://127.0.0.1:{port}", Registry(uri)
    signs = {"1": 1, "2": -1}
    try:
        wait_until_ready(base, child)

        def ask(client: httpx.Client, number: int) -> str:
            text = TEXTS[number % len(TEXTS)]
            answer = client.post("/classify", json={"texts": [text] * (number % 3 + 1)}).json()
            expected = expect(text) ** signs[answer["version"]]
            for result in answer["results"]:
                found = list(result["probabilities"].values())
                np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-6)
            return answer["version"]

        answers = []
        with (
            httpx.Client(base_url=base, headers=AUTHORIZED, timeout=60) as client,
            ThreadPoolExecutor(8) as pool,
        ):
            for change in range(10):
                answers += [pool.submit(ask, client, number) for number in range(100)]
                registry.promote(str(2 - change % 2), "by hand")
                time.sleep(0.3)
        versions = [answer.result() for answer in answers]
        assert len(versions) == 1_000
        assert set(versions) == {"1", "2"}
        child.send_signal(signal.SIGTERM)
        child.wait(30)
    finally:
        child.kill()
        registry.promote("1", "by hand")


def wait_until_ready(base: str, child: subprocess.Popen) -> None:
    for _ in range(600):
        assert child.poll() is None
        try:
            if httpx.get(f"{base}/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError
