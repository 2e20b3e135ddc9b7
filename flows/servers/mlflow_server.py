"""The MLflow server: its start, its settings and its address.

It listens on 127.0.0.1, keeps its data in the store and opens no connection to another machine.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT, Child
from amazon_electra.flows.servers.prefect_server import find_running_servers, set_database_driver
from amazon_electra.flows.servers.settings import HOST, NO_TELEMETRY
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_client import is_new_database


def resolve_mlflow_uri(store: Path) -> str:
    """Return MLFLOW_TRACKING_URI, else the server that is up for this store, else its database."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or find_running_servers(store).get("mlflow")
    return uri or resolve_mlflow_database(store)


def resolve_mlflow_database(store: Path) -> str:
    """Return the database that MLFLOW_BACKEND_STORE_URI names, else a file in the store."""
    uri = os.environ.get("MLFLOW_BACKEND_STORE_URI")
    return set_database_driver(uri, "psycopg2") if uri else f"sqlite:///{store}/mlflow/mlflow.db"


def start_mlflow_server(store: Path, port: int) -> Child:
    """Start an MLflow server on the store; the caller waits until it answers."""
    folder = store / "mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    address = ["--host", HOST, "--port", str(port), "--workers", "1"]
    guarded = ["--app-name", "amazon-electra"]  # flows/servers/mlflow_application.py
    command = [sys.executable, "-m", "mlflow", "server", *address, *guarded]
    database = resolve_mlflow_database(store)
    if is_new_database(database):  # a server that is interrupted while it makes one leaves half
        maker = [sys.executable, "-m", "amazon_electra.model.tracking.mlflow_client", database]
        subprocess.run(maker, check=True, env=os.environ | PYTHON_ENVIRONMENT)
    settings = {
        **NO_TELEMETRY,
        "MLFLOW_BACKEND_STORE_URI": database,
        "MLFLOW_ARTIFACTS_DESTINATION": locate_artifacts(store),
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": locate_artifacts(store),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    if os.environ.get("MLFLOW_TRACKING_USERNAME"):
        settings |= write_mlflow_access(folder)
    return Child(command, store / "logs" / "mlflow.log", settings)


def write_mlflow_access(folder: Path) -> dict[str, str]:
    """Return the settings of a server with the password of MLFLOW_TRACKING_USERNAME, and tokens.

    No file has the password: the server keeps a hash of it. A password that was changed later is
    changed in MLflow too (its page /account), or `access.db` is removed.
    """
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    if not password:
        raise UserError(
            "MLFLOW_TRACKING_USERNAME is set, MLFLOW_TRACKING_PASSWORD is not: set both or none"
        )
    path = folder / "access.ini"
    path.write_text(
        "[mlflow]\ndefault_permission = READ\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        f"database_uri = sqlite:///{folder}/access.db\n",
        encoding="utf-8",
    )
    key = os.environ.get("MLFLOW_FLASK_SERVER_SECRET_KEY") or secrets.token_hex(32)
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(path),
        "MLFLOW_AUTH_ADMIN_USERNAME": os.environ["MLFLOW_TRACKING_USERNAME"],
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": key,
    }


def locate_artifacts(store: Path) -> str:
    """Return the address of the folder in which the store's MLflow keeps its artifacts."""
    return f"file://{store}/mlflow/artifacts"


def choose_artifact_place(uri: str, store: Store) -> str:
    """Return where this process finds the artifacts of an MLflow as files: in the store, for its
    database and the server of `up`. Empty for other servers, which get and send them over HTTP.
    """
    is_own = not uri.startswith("http") or uri == find_running_servers(store.root).get("mlflow")
    return locate_artifacts(store.root) if is_own else ""
