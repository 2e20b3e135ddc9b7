"""Published models that have to be looked up: on a hub, and in MLflow's registry."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from safetensors.torch import load_file

from amazon_electra.model.encoders.places import is_named
from tests.model.encoders.checkpoints import write_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What the hub answers for its models, whose files are in folders of their names; only half of
    the weights of `lab/short` comes, and `lab/away` is asked for while the hub is down.
    """

    root: Path
    requested: list[str]

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(self.path.split("?")[0])
        self.requested.append(path)
        if "/lab/away/" in path:
            return self.refuse("Unavailable", 503)
        if asked := re.fullmatch(r"/api/models/(lab/\w+)/(revision|tree)/(\w+)", path):
            name, what, revision = asked.groups()
            files = sorted((self.root / name).glob("*"))
            if files and revision not in ("main", COMMIT):
                return self.refuse("RevisionNotFound")
            if files:
                told = describe_model(name, files) if what == "revision" else list_files(files)
                return self.answer(json.dumps(told).encode())
        if asked := re.fullmatch(rf"/(lab/\w+)/resolve/{COMMIT}/(.+)", path):
            file = self.root / asked[1] / asked[2]
            if file.is_file():
                content = file.read_bytes()
                is_cut = asked[1] == "lab/short" and file.suffix == ".safetensors"
                is_cut = is_cut and self.command == "GET"
                return self.answer(content[: len(content) // 2] if is_cut else content)
        return self.refuse("RepoNotFound")

    def answer(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def refuse(self, code, status=404):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


def describe_model(name, files):
    siblings = [{"rfilename": file.name} for file in files]
    return {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}


def list_files(files):
    return [
        {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40} for f in files
    ]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub on this machine, and the environment of a process that uses it."""
    root = tmp_path_factory.mktemp("hub")
    for name in ("tiny", "short", "pickled"):
        write_checkpoint(root / "lab" / name)
    (root / "lab" / "tiny" / "tf_model.h5").write_bytes(b"not wanted")
    weights = load_file(root / "lab" / "tiny" / "model.safetensors")
    for name in ("tiny", "pickled"):
        torch.save(weights, root / "lab" / name / "pytorch_model.bin")
    (root / "lab" / "pickled" / "model.safetensors").unlink()
    handler = type("Served", (Hub,), {"root": root, "requested": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    environment = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(root / "cache"),
        "HF_HUB_OFFLINE": "0",
    }
    yield handler, environment
    server.shutdown()
    thread.join()
    server.server_close()


BRING = """
import json, sys
from pathlib import Path
from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.model.origin import write_origin

for place, output in zip(sys.argv[2:], range(100)):
    folder = Path(sys.argv[1], str(output))
    try:
        print(json.dumps(write_origin(place, folder)))
    except (TransientError, UserError) as error:
        refused = {"error": type(error).__name__, "told": str(error), "left": folder.exists()}
        print(json.dumps(refused))
"""


def bring(folder, places, environment):
    """What one process tells of each place; the hub's client reads its settings at import."""
    command = [sys.executable, "-c", BRING, str(folder), *places]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def brought(hub, tmp_path_factory):
    """What is told of the models of the hub, and which files were asked for."""
    places = ["lab/tiny", "lab/pickled", "lab/short", "lab/other", "lab/tiny@v9", "lab/away"]
    told = bring(tmp_path_factory.mktemp("online"), places, hub[1])
    return dict(zip(places, told, strict=True)), list(hub[0].requested)


def test_the_hub_pins_the_commit(brought):
    told, requested = brought
    for name in ("lab/tiny", "lab/pickled"):
        assert (told[name]["name"], told[name]["revision"]) == (name, COMMIT)
    assert not any("tf_model" in path for path in requested)
    pickled = {path.split("/")[2] for path in requested if "pytorch_model" in path}
    assert pickled == {"pickled"}


def test_what_was_fetched_is_there_without_a_network(brought, hub, tmp_path):
    handler, environment = hub
    handler.requested.clear()
    places = ["lab/tiny", f"lab/tiny@{COMMIT}", "lab/other"]
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    again, pinned, refused = bring(tmp_path, places, offline)
    assert again["sha256"] == pinned["sha256"] == brought[0]["lab/tiny"]["sha256"]
    assert pinned["revision"] == COMMIT
    assert refused["error"] == "UserError"
    assert "`hf download lab/other --local-dir DIR`" in refused["told"]
    assert handler.requested == []


@pytest.mark.parametrize(
    ("place", "error", "told"),
    [
        ("lab/other", "UserError", "lab/other"),
        ("lab/tiny@v9", "UserError", "lab/tiny@v9"),
        ("lab/short", "TransientError", "broke off"),
        ("lab/away", "TransientError", "`hf download lab/away"),
    ],
)
def test_what_the_hub_does_not_give_is_named(place, error, told, brought):
    refused = brought[0][place]
    assert (refused["error"], refused["left"]) == (error, False)
    assert refused["told"].startswith(f"place {place}: ")
    assert told in refused["told"]
    assert "\n" not in refused["told"]


def test_a_path_needs_no_looking_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab" / "tiny").mkdir(parents=True)
    assert not is_named("lab/tiny")
    assert is_named("lab/other")
    assert is_named("package:one")
    assert not is_named("/lab/other")
