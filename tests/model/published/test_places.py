"""Published models that have to be looked up: on a hub, and in MLflow's registry."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from safetensors.torch import load_file

from beam_jobs.job.errors import UserError
from model.origin import run
from model.published.hub import BrokenOff, Download
from model.published.places import is_named
from model.tracking.mlflow_client import create_client
from tests.model.published.checkpoints import write_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What the hub answers for one model, `lab/tiny`, whose files are in `folder`."""

    folder: Path
    requested: list[str]
    cut = ""
    """What becomes of weights: of `announced` the whole length is, and half comes; of `short` half
    is announced, too.
    """

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(self.path.split("?")[0])
        self.requested.append(path)
        if path.startswith("/api/models/lab/tiny/revision/"):
            if path.rsplit("/", 1)[1] in ("main", COMMIT):
                return self.answer(json.dumps(self.describe()).encode())
            return self.refuse("RevisionNotFound")
        if path == f"/api/models/lab/tiny/tree/{COMMIT}":
            return self.answer(json.dumps(self.list_files()).encode())
        resolved = f"/lab/tiny/resolve/{COMMIT}/"
        file = self.folder / path.removeprefix(resolved)
        if path.startswith(resolved) and file.is_file():
            is_cut = self.cut and file.suffix == ".safetensors" and self.command == "GET"
            return (self.answer_in_part if is_cut else self.answer)(file.read_bytes())
        return self.refuse("RepoNotFound")

    def answer_in_part(self, content):
        part = content[: len(content) // 2]
        return self.answer(part, len(part if self.cut == "short" else content))

    def describe(self):
        files = sorted(file.name for file in self.folder.iterdir())
        siblings = [{"rfilename": name} for name in files]
        return {"id": "lab/tiny", "modelId": "lab/tiny", "sha": COMMIT, "siblings": siblings}

    def list_files(self):
        files = sorted(self.folder.iterdir())
        return [
            {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40}
            for f in files
        ]

    def answer(self, content, length=None):
        self.send_response(200)
        self.send_header("Content-Length", str(length or len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def refuse(self, code):
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def hub(tmp_path):
    """A hub on this machine, and the environment of a process that uses it."""
    handler = type("Served", (Hub,), {"folder": tmp_path / "published", "requested": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    environment = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "0",
    }
    yield handler, environment
    server.shutdown()
    thread.join()
    server.server_close()


def bring(place, output, environment):
    words = ["-m", "model.origin", "--place", place, "--output", str(output)]
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120
    )


def test_the_hub_pins_the_commit_and_works_offline_afterwards(tmp_path, hub):
    handler, environment = hub
    source = write_checkpoint(tmp_path / "published")
    (source / "tf_model.h5").write_bytes(b"not wanted")
    done = bring("lab/tiny", tmp_path / "origin", environment)
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert (about["name"], about["revision"]) == ("lab/tiny", COMMIT)
    assert not any("tf_model" in path for path in handler.requested)
    handler.requested.clear()
    assert json.loads(bring("lab/tiny", tmp_path / "origin", environment).stdout) == about
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    again = bring("lab/tiny", tmp_path / "again", offline)
    assert json.loads(again.stdout)["sha256"] == about["sha256"]
    pinned = bring(f"lab/tiny@{COMMIT}", tmp_path / "pinned", offline)
    assert json.loads(pinned.stdout)["revision"] == COMMIT
    assert handler.requested == []


def test_pickled_weights_are_fetched_only_where_there_are_no_others(tmp_path, hub):
    handler, environment = hub
    source = write_checkpoint(tmp_path / "published")
    weights = load_file(source / "model.safetensors")
    torch.save(weights, source / "pytorch_model.bin")
    assert bring("lab/tiny", tmp_path / "origin", environment).returncode == 0
    assert not any("pytorch_model" in path for path in handler.requested)
    (source / "model.safetensors").unlink()
    fresh = environment | {"HF_HOME": str(tmp_path / "fresh")}
    assert bring("lab/tiny", tmp_path / "other", fresh).returncode == 0
    assert any("pytorch_model" in path for path in handler.requested)


@pytest.mark.parametrize(
    ("place", "changed", "told", "code"),
    [
        ("lab/other", {}, "the hub has no model lab/other", 2),
        ("lab/tiny@v9", {}, "lab/tiny has no revision v9 on the hub", 2),
        ("lab/tiny", {"HF_HUB_OFFLINE": "1"}, "run `hf download lab/tiny --local-dir DIR`", 2),
        (
            "lab/tiny",
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            "run `hf download lab/tiny --local-dir DIR`",
            os.EX_TEMPFAIL,
        ),
    ],
)
def test_what_the_hub_does_not_give_is_one_line(place, changed, told, code, tmp_path, hub):
    write_checkpoint(tmp_path / "published")
    refused = bring(place, tmp_path / "origin", hub[1] | changed)
    assert refused.returncode == code
    lines = refused.stderr.strip().splitlines()
    assert lines[-1].startswith(f"error: --place {place}: ")
    assert told in lines[-1]
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "origin").exists()


@pytest.mark.parametrize("cut", ["announced", "short"])
def test_an_answer_that_is_cut_short_is_one_line_and_nothing_stays(cut, tmp_path, hub):
    handler, environment = hub
    source = write_checkpoint(tmp_path / "published")
    handler.cut = cut
    broken = bring("lab/tiny", tmp_path / "origin", environment)
    assert broken.returncode == os.EX_TEMPFAIL, broken.stderr
    told = broken.stderr.strip().splitlines()[-1]
    assert told.startswith("error: --place lab/tiny: the download from the hub broke off (")
    assert told.endswith("); run the same again")
    assert "Traceback" not in broken.stderr
    assert not (tmp_path / "origin").exists()
    handler.cut = ""
    again = bring("lab/tiny", tmp_path / "origin", environment)
    assert again.returncode == 0, again.stderr
    assert load_file(tmp_path / "origin" / "model.safetensors").keys() == (
        load_file(source / "model.safetensors").keys()
    )


def test_a_file_is_not_begun_anew_for_ever():
    """The hub's client tries again as long as each attempt brings something."""
    bar = Download("lab/tiny").build_bar_class()(unit="B", total=10)
    for _ in range(3):
        bar.update(5)
        bar.update(-5)
    with pytest.raises(BrokenOff):
        bar.update(-5)


def test_a_download_tells_its_progress_to_the_process_above(tmp_path, hub):
    source = write_checkpoint(tmp_path / "published")
    environment = hub[1] | {"AMAZON_ELECTRA_PROGRESS": "json"}
    done = bring("lab/tiny", tmp_path / "origin", environment)
    lines = [line for line in done.stderr.splitlines() if line.startswith("PROGRESS ")]
    reports = [json.loads(line.removeprefix("PROGRESS ")) for line in lines]
    assert {report["description"] for report in reports} == {"download lab/tiny"}
    last, size = reports[-1], sum(file.stat().st_size for file in source.iterdir())
    assert (last["unit"], last["done"], last["total"]) == ("kB", size // 1000, size // 1000)
    again = bring("lab/tiny", tmp_path / "again", environment)
    assert again.returncode == 0
    assert "PROGRESS" not in again.stderr, "it is in the cache"


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry with the model `tiny`: version 1, the champion."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    source = write_checkpoint(tmp_path / "published")
    client = create_client(uri)
    experiment = client.create_experiment("e", (tmp_path / "artifacts").as_uri())
    made = client.create_run(experiment)
    client.log_artifacts(made.info.run_id, str(source), "model/encoder")
    client.create_registered_model("tiny")
    place = f"{made.info.artifact_uri}/model"
    version = client.create_model_version("tiny", place, made.info.run_id)
    client.set_registered_model_alias("tiny", "champion", version.version)
    return tmp_path


@pytest.mark.parametrize("place", ["models:/tiny@champion", "models:/tiny/1"])
def test_a_registered_model_is_copied(place, registry):
    about = run(["--place", place, "--output", str(registry / "origin")])
    assert (about["name"], about["version"], about["revision"]) == ("tiny", "1", None)
    assert (registry / "origin" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("models:/tiny@nobody", "registry of MLflow: .*nobody"),
        ("models:/tiny/7", "registry of MLflow: .*7"),
        ("models:/other@champion", "registry of MLflow: .*other"),
        ("models:/tiny", "write models:/name@alias or models:/name/3"),
    ],
)
def test_what_is_not_registered_is_refused(place, told, registry):
    with pytest.raises(UserError, match=f"--place {place}: .*{told}"):
        run(["--place", place, "--output", str(registry / "origin")])
    assert not (registry / "origin").exists()


def test_a_registry_needs_its_address(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UserError, match="set MLFLOW_TRACKING_URI"):
        run(["--place", "models:/tiny@champion", "--output", str(tmp_path / "origin")])


def test_a_path_needs_no_looking_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab" / "tiny").mkdir(parents=True)
    assert not is_named("lab/tiny")
    assert is_named("lab/other")
    assert is_named("package:one")
    assert not is_named("/lab/other")
