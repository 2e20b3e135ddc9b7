"""MLflow's server on a new store, also where its start was interrupted."""

import base64
import urllib.request

from flows.servers.health import find_free_port, is_healthy, wait_until_healthy
from flows.servers.mlflow_server import start_mlflow_server
from tests.patience import eventually

KILLING = """
import os, signal
from alembic.ddl.impl import DefaultImpl
execute = DefaultImpl._exec
def kill_after(self, construct, *more, **named):
    done = execute(self, construct, *more, **named)
    if os.environ["KILLED_AT"] in str(construct):
        os.kill(os.getpid(), signal.SIGKILL)
    return done
DefaultImpl._exec = kill_after
"""
"""Python imports it first in every process of the server."""
USER = {"MLFLOW_TRACKING_USERNAME": "electra", "MLFLOW_TRACKING_PASSWORD": "three kind words"}


def test_a_server_whose_first_start_was_killed_starts(tmp_path, monkeypatch):
    store, code = tmp_path / "store", tmp_path / "code"
    code.mkdir()
    (code / "sitecustomize.py").write_text(KILLING)
    for name, value in USER.items():
        monkeypatch.setenv(name, value)
    port = find_free_port()
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(code), prepend=":")
        for table in ("_alembic_tmp_experiments", "registered_model_permissions"):
            patched.setenv("KILLED_AT", f"CREATE TABLE {table}")
            server = start_mlflow_server(store, port)
            eventually(server.has_ended, server.read_log_end)
            assert "SIGKILL" in server.find_cause()
    server = start_mlflow_server(store, port)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy("MLflow", server, lambda: is_healthy(f"{address}/health"))
        word = base64.b64encode(":".join(USER.values()).encode()).decode()
        for path in ("experiments/get?experiment_id=0", "users/get?username=electra"):
            request = urllib.request.Request(
                f"{address}/api/2.0/mlflow/{path}", headers={"Authorization": f"Basic {word}"}
            )
            with urllib.request.urlopen(request) as answer:
                found = answer.read().decode()
        assert "electra" in found
    finally:
        server.end()
