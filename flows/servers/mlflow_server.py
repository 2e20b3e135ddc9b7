"""MLflow's own server with its own passwords: its start, its settings and its address.

It listens on 127.0.0.1, keeps its data in the store and connects to no other machine.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT, Child
from amazon_electra.flows.servers.access import (
    PASSWORD_FILE,
    find_running_servers,
    read_password,
)
from amazon_electra.flows.servers.settings import HOST, NO_TELEMETRY
from amazon_electra.model.tracking.mlflow_client import is_new_database


def resolve_mlflow_uri(store: Path) -> str:
    """Return MLFLOW_TRACKING_URI, else the server that is up for this store, else its database."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or find_running_servers(store).get("mlflow")
    return uri or resolve_mlflow_database(store)


def resolve_mlflow_database(store: Path) -> str:
    """Return the database that MLFLOW_BACKEND_STORE_URI names, else a file in the store."""
    return os.environ.get("MLFLOW_BACKEND_STORE_URI") or f"sqlite:///{store}/mlflow/mlflow.db"


def locate_artifacts(store: Path) -> str:
    """Return the address of the folder in which the store's MLflow keeps its artifacts."""
    return f"file://{store}/mlflow/artifacts"


def start_mlflow_server(store: Path, port: int) -> Child:
    """Start an MLflow server on the store; the caller waits until it answers.

    Its processes on this machine read and write artifacts as files.
    """
    folder, database = store / "mlflow", resolve_mlflow_database(store)
    folder.mkdir(parents=True, exist_ok=True)
    if is_new_database(database):  # a server that is interrupted while it makes one leaves half
        maker = [sys.executable, "-m", "amazon_electra.model.tracking.mlflow_client", database]
        subprocess.run(maker, check=True, env=os.environ | PYTHON_ENVIRONMENT)
    user, _, password = read_password(store).partition(":")
    access, users = folder / "access.ini", folder / "access.db"
    if users.exists() and users.stat().st_mtime < (store / PASSWORD_FILE).stat().st_mtime:
        users.unlink()  # it has the password of an earlier file
    access.write_text(
        "[mlflow]\ndefault_permission = NO_PERMISSIONS\nauth_cache_ttl_seconds = 60\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        f"database_uri = sqlite:///{users}\n",
        encoding="utf-8",
    )
    settings = {
        **NO_TELEMETRY,
        "MLFLOW_BACKEND_STORE_URI": database,
        "MLFLOW_ARTIFACTS_DESTINATION": locate_artifacts(store),
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": locate_artifacts(store),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_AUTH_CONFIG_PATH": str(access),
        "MLFLOW_AUTH_ADMIN_USERNAME": user,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
    }
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"]
    address = ["--host", HOST, "--port", str(port), "--workers", "1"]
    return Child([*command, *address], store / "logs" / "mlflow.log", settings)
