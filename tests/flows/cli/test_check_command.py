"""`check` notices a folder and a server that do not answer as the model did."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.flows.cli.main import main
from amazon_electra.model.self_test import SelfTest
from tests.beam_jobs.scoring.models import LABELS, write_tfidf

TEXTS = [f"{word} phone {n}" for n in range(20) for word in ("good", "bad")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, _ = write_tfidf(tmp_path_factory.mktemp("check") / "model")
    answers = load_classifier(str(folder), "fp32").compute_probabilities(TEXTS)
    SelfTest(LABELS, TEXTS, answers).write(folder)
    return folder


def answer_tei(path, body, classify):
    rows = classify([text for [text] in body["inputs"]])
    scores = [
        [{"label": name, "score": p} for name, p in zip(LABELS, row, strict=True)] for row in rows
    ]
    return [sorted(row, key=lambda one: -one["score"]) for row in scores]


def answer_mlflow(path, body, classify):
    rows = classify(body["inputs"])
    return {"predictions": [{"probabilities": dict(zip(LABELS, row, strict=True))} for row in rows]}


def answer_kserve(path, body, classify):
    assert path == "/v1/models/electra:predict"
    return {
        "predictions": [dict(zip("012", row, strict=True)) for row in classify(body["instances"])]
    }


def answer_open_inference(path, body, classify):
    assert path == "/v2/models/electra/infer"
    rows = np.array(classify(body["inputs"][0]["data"]))
    output = {"name": "probabilities", "datatype": "FP32", "shape": list(rows.shape)}
    return {"outputs": [{**output, "data": rows.ravel().tolist()}]}


SERVERS = {
    "text-embeddings-inference": ("", answer_tei),
    "MLflow": ("", answer_mlflow),
    "KServe": ("/v1/models/electra", answer_kserve),
    "Open Inference": ("/v2/models/electra", answer_open_inference),
}


@pytest.fixture
def serve(folder):
    """Starts a server with one of SERVERS and a factor of its logits; returns its URL."""
    started = []

    def serve(name, factor=1.0):
        path, answer = SERVERS[name]

        def classify(texts):
            powers = load_classifier(str(folder), "fp32").compute_probabilities(texts) ** factor
            return (powers / powers.sum(1, keepdims=True)).tolist()

        class Handler(BaseHTTPRequestHandler):
            def reply(self, status, content):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def do_GET(self):
                is_known = name.startswith("text") and self.path == "/info"
                self.reply(200 if is_known else 404, {"model_id": "electra"})

            def do_POST(self):
                if self.headers["Authorization"] != "Bearer secret":
                    return self.reply(401, "no token")
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                return self.reply(200, answer(self.path, body, classify))

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}{path}"

    yield serve
    for server in started:
        server.shutdown()
        server.server_close()


def check(capsys, *words):
    """Return the exit code of `check`, and what it wrote."""
    with pytest.raises(SystemExit) as ended:
        main(["check", *map(str, words)])
    read = capsys.readouterr()
    return ended.value.code, read.out + read.err


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_of_each_protocol_is_asked_and_one_with_another_temperature_noticed(
    folder, serve, capsys, name, monkeypatch
):
    monkeypatch.setenv("AMAZON_ELECTRA_TOKEN", "wrong")
    assert check(capsys, serve(name), "--model", folder)[0] == 2
    monkeypatch.setenv("AMAZON_ELECTRA_TOKEN", "secret")
    code, said = check(capsys, serve(name), "--model", folder)
    assert (code, said.split(":")[0]) == (0, name)
    code, said = check(capsys, serve(name, factor=1.5), "--model", folder)
    assert code == 2
    assert f"{name}: differs" in said


def test_a_damaged_folder_and_a_wrong_call_are_noticed(folder, serve, tmp_path, capsys):
    assert check(capsys, folder)[0] == 0
    config = folder / "config.json"
    before = config.read_text()
    config.write_text(before.replace('"temperature": 1.5', '"temperature": 1'))
    try:
        code, said = check(capsys, folder)
    finally:
        config.write_text(before)
    assert code == 2
    assert "score: differs" in said
    for words, names in (
        ([tmp_path], "self_test.json"),
        ([serve("MLflow")], "--model"),
        (["http://127.0.0.1:9", "--model", folder], "127.0.0.1:9"),
    ):
        code, said = check(capsys, *words)
        assert code == 2
        assert names in said
    (tmp_path / "self_test.json").write_text('{"labels": ["a"], "texts": []}')
    code, said = check(capsys, tmp_path)
    assert code == 2
    assert "self_test.json" in said
