"""The Prefect and MLflow servers: on 127.0.0.1, their data in the store, never a word to the outside.

`amazon-electra run` needs a Prefect server only while it runs. It takes the one named by PREFECT_API_URL, else the one
that `amazon-electra up` started for this store, else it starts one of its own on the same database, so that the UI
shows the run later.
"""

import importlib.util
import os
import re
import secrets
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from beam_jobs.command import UserMistake
from flows import holding
from flows.processes import Child

HOST = "127.0.0.1"
HEARTBEAT_SECONDS = 30
"""Between two signs of life of a flow run; Prefect's own is 180, and it allows no less than this."""
START_SECONDS = 180.0
"""The first start creates the database, which took 8 s on two idle cores."""

QUIET = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "HF_HUB_OFFLINE": "1",
}
"""Nothing of this project calls home."""
CLIENT = {
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_API_REQUEST_TIMEOUT": "20",
    "PREFECT_CLIENT_MAX_RETRIES": "8",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
}
"""Eight retries wait for 2 + 4 + … + 256 s: a run outlives a server that is away for eight minutes."""
SERVER = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
}
"""Leases in files outlive the server: kept in its memory, a restart in the middle of a training would leave the
accelerator taken for ever."""
PREFECT_DATABASE = ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL")
"""Both names of the same setting."""
WITHOUT_SERVICES = {
    f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false"
    for name in (
        "SCHEDULER",
        "LATE_RUNS",
        "CANCELLATION_CLEANUP",
        "PAUSE_EXPIRATIONS",
        "TRIGGERS",
        "FOREMAN",
    )
}
"""What a server that lives for one run does not need."""
OLD_DATABASE = {
    "out-of-date database schema": "the MLflow database is of an older version: copy it, then `mlflow db upgrade URI`",
    "Can't locate revision": "the database is newer than the installed package: upgrade that, or use another --store",
    "no such table": "the database is not complete: use another --store, or put back a copy of it",
}


class ServerFailed(RuntimeError):
    """A server did not come up; the message names its log."""


def environment(store: Path, api_url: str = "") -> dict[str, str]:
    """What every process of a run sees."""
    url = {"PREFECT_API_URL": api_url} if api_url else {}
    return {**QUIET, **CLIENT, "PREFECT_HOME": str(store / "prefect"), **url}


def end_at_signals(*signals: int) -> None:
    """These are told as Ctrl-C is; a shell that starts a command in the background has it ignore that one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stop in signals:
        signal.signal(stop, lambda *_: signal.raise_signal(signal.SIGINT))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def answers(url: str, timeout: float = 2.0) -> bool:
    """Whether a server says it is well at this address; one that asks for a password is well too."""
    try:
        with urllib.request.urlopen(url, timeout=timeout):
            return True
    except urllib.error.HTTPError as refused:
        return refused.code == 401
    except (OSError, ValueError):
        return False


def wait_until_well(name: str, process: Child, well: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not well():
        if process.over():
            raise ServerFailed(f"{name} did not start: {explained(process)} (log: {process.log})")
        if time.monotonic() > deadline:
            raise ServerFailed(f"{name} gave no answer in {START_SECONDS:.0f} s (log: {process.log})")
        time.sleep(0.1)


def explained(process: Child) -> str:
    """What ended it, or what its last words mean where we know."""
    said = process.said()
    return next((meaning for words, meaning in OLD_DATABASE.items() if words in said), process.cause())


def prefect_server(store: Path, port: int, settings: Mapping[str, str] = {}) -> Child:
    """Starts a Prefect server; whoever starts it waits until it answers."""
    (store / "prefect").mkdir(parents=True, exist_ok=True)
    application = ["--factory", "flows.prefect_application:create_app"]
    address = ["--host", HOST, "--port", str(port), "--log-level", "warning", "--timeout-keep-alive", "5"]
    command = [sys.executable, "-m", "uvicorn", *application, *address]
    url = f"http://{HOST}:{port}/api"
    own = {"PREFECT_SERVER_UI_API_URL": url, **protection(port), **SERVER}
    for name in PREFECT_DATABASE:
        if os.environ.get(name):
            own[name] = with_driver(os.environ[name], "asyncpg")
    return Child(command, store / "logs" / "prefect.log", {**environment(store, url), **own, **settings})


def protection(port: int) -> dict[str, str]:
    """A change needs a token, and no page but the server's own UI may read one: Prefect lets all pages."""
    pages = ",".join(f"http://{name}:{port}" for name in (HOST, "localhost"))
    return {"PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true", "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": pages}


def with_driver(url: str, driver: str) -> str:
    """A PostgreSQL address as its users write it, for whoever needs the driver named; others stay as they are."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", f"postgresql+{driver}://", url)


def mlflow_server(store: Path, port: int) -> Child:
    """Starts an MLflow server on the store, or on the database that MLFLOW_BACKEND_STORE_URI names."""
    folder = store / "mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    database = mlflow_database(store)
    artifacts = ["--artifacts-destination", str(folder / "artifacts")]
    address = ["--host", HOST, "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *address, *artifacts]
    settings = {**QUIET, "MLFLOW_BACKEND_STORE_URI": database, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    if os.environ.get("MLFLOW_TRACKING_USERNAME"):
        command += ["--app-name", "basic-auth"]
        settings |= mlflow_access(folder)
    return Child(command, store / "logs" / "mlflow.log", settings)


def mlflow_access(folder: Path) -> dict[str, str]:
    """The settings of a server that asks for the password of MLFLOW_TRACKING_USERNAME, and for a token with changes.

    No file has the password: the server keeps a hash of it. A password that was changed later is changed in MLflow too
    (its page /account), or `access.db` is removed.
    """
    if importlib.util.find_spec("flask_wtf") is None:
        raise UserMistake('MLFLOW_TRACKING_USERNAME asks for a password; that needs: pip install "mlflow[auth]"')
    name, password = os.environ["MLFLOW_TRACKING_USERNAME"], os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    if not password:
        raise UserMistake("MLFLOW_TRACKING_USERNAME is set, MLFLOW_TRACKING_PASSWORD is not: set both or none")
    path = folder / "access.ini"
    path.write_text(
        "[mlflow]\ndefault_permission = READ\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        f"database_uri = sqlite:///{folder}/access.db\n"
    )
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(path),
        "MLFLOW_AUTH_ADMIN_USERNAME": name,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": os.environ.get("MLFLOW_FLASK_SERVER_SECRET_KEY") or secrets.token_hex(32),
    }


class PrefectServer:
    """A Prefect server for one run; ready once `wait` returns."""

    def __init__(self, store: Path, port: int):
        self.url = f"http://{HOST}:{port}/api"
        self.process = prefect_server(store, port, {"PREFECT_SERVER_UI_ENABLED": "false", **WITHOUT_SERVICES})

    def wait(self) -> None:
        wait_until_well("the Prefect server", self.process, lambda: answers(f"{self.url}/health"))


def running(store: Path) -> dict[str, str]:
    """The addresses of the servers that `amazon-electra up` keeps for this store, where they answer."""
    state = holding.state(store)
    if state and answers(f"{state['prefect']}/api/health"):
        return {name: state[name] for name in ("prefect", "mlflow")}
    return {}


@contextmanager
def prefect_for(store: Path) -> Iterator[PrefectServer | None]:
    """Sets this process up to talk to a Prefect server; the block must `wait` for one that was started for it."""
    given = os.environ.get("PREFECT_API_URL")
    if not given and (up := running(store)):
        given = f"{up['prefect']}/api"
    if given:
        os.environ.update(environment(store, given))
        yield None
        return
    server = PrefectServer(store, free_port())
    try:
        os.environ.update(environment(store, server.url))
        yield server
    finally:
        server.process.end()


def mlflow_uri(store: Path) -> str:
    """MLFLOW_TRACKING_URI, else the server that is up for this store, else the store's own database."""
    given = os.environ.get("MLFLOW_TRACKING_URI") or running(store).get("mlflow")
    return given or mlflow_database(store)


def mlflow_database(store: Path) -> str:
    """The one that MLFLOW_BACKEND_STORE_URI names, else a file in the store."""
    given = os.environ.get("MLFLOW_BACKEND_STORE_URI")
    return with_driver(given, "psycopg2") if given else f"sqlite:///{store}/mlflow/mlflow.db"


def let_prefect_finish(seconds: float = 5.0) -> None:
    """Task states and logs travel in the background; a server that ends now must have them first."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        with suppress(Exception):
            worker.drain_all(timeout=seconds)
