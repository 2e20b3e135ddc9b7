"""Prefect's and MLflow's own servers: their start, their settings, and who connects to which.

Each listens on 127.0.0.1, has the store's password, keeps its data in the store and connects to no
other machine.
"""

import atexit
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from amazon_electra.beam_jobs.core.locks import exclusive_lock
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT, Child
from amazon_electra.flows.servers.access import (
    PASSWORD_FILE,
    build_prefect_access,
    find_running_servers,
    read_password,
)
from amazon_electra.flows.servers.health import (
    POLL_SECONDS,
    find_free_port,
    is_healthy,
    wait_until_healthy,
)
from amazon_electra.flows.servers.settings import HOST, NO_TELEMETRY, build_client_environment
from amazon_electra.model.tracking.mlflow_client import is_new_database


def start_prefect_server(store: Path, port: int, factory: str = "create_server") -> Child:
    """Start a Prefect server on the store; the caller waits until it answers. `factory` is a
    function of servers/prefect_app.py.
    """
    (store / "prefect").mkdir(parents=True, exist_ok=True)
    app = f"amazon_electra.flows.servers.prefect_app:{factory}"
    command = [sys.executable, "-m", "uvicorn", "--factory", app, "--log-level", "warning"]
    url = f"http://{HOST}:{port}"
    settings = {
        **build_client_environment(store, f"{url}/api"),
        # leases in memory would leave the accelerator taken for ever after a restart
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage"
        ".filesystem",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",  # it asks a third party for its settings
        "PREFECT_SERVER_API_AUTH_STRING": read_password(store),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": url,
        "PREFECT_SERVER_UI_API_URL": f"{url}/api",
    }
    address = ["--host", HOST, "--port", str(port)]
    return Child([*command, *address], store / "logs" / "prefect.log", settings)


def connect_prefect(store: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Set this process's environment up for a Prefect server: that of PREFECT_API_URL, else that of
    `amazon-electra up`, else one for this process alone on the same database, so that the UI shows
    the run later. Call `meanwhile` while it starts.

    It ends last of all with this process: Prefect's own end sends it what still waits.
    """
    url = os.environ.get("PREFECT_API_URL")
    if not url and (servers := find_running_servers(store)):
        url = f"{servers['prefect']}/api"
    if url:
        os.environ.update(build_client_environment(store, url))
        meanwhile()
        return
    port = find_free_port()
    url = f"http://{HOST}:{port}/api"
    os.environ.update(build_client_environment(store, url) | build_prefect_access(store))
    with exclusive_lock(store / "prefect" / "start.lock"):  # the first one makes the database
        server, over = start_prefect_server(store, port, "create_run_server"), threading.Event()
        atexit.register(server.end)
        atexit.register(over.set)
        meanwhile()
        wait_until_healthy("the Prefect server", server, lambda: is_healthy(f"{url}/health"))

    def end_with_server() -> None:  # Prefect's client would repeat its requests for minutes
        while not over.wait(POLL_SECONDS):
            if server.poll() is not None:
                cause = f"failed: the Prefect server ended: {server.find_cause()}"
                again = f"(log: {server.log}); the same command continues"
                print(f"{cause} {again}", file=sys.stderr, flush=True)
                os._exit(os.EX_TEMPFAIL)

    threading.Thread(target=end_with_server, daemon=True).start()


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
