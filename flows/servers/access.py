"""How to reach the servers of a store: settings, password, addresses, health. `python -m
amazon_electra.flows.servers.access URL` fails where no server answers.
"""

import json
import os
import secrets
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from amazon_electra.beam_jobs.core.errors import JobFailed, UserError, refuse
from amazon_electra.model.locks import try_lock

HOST = "127.0.0.1"
TAG = "amazon-electra"  # of every run of ours, by which the automations know them
PAUSED_EVENT = "amazon-electra.run.paused"  # last event of a run's process that leaves it suspended
READY_FILE = Path("logs", "deployments.ready")  # of the store: the deployments are served
PASSWORD_FILE = "password"
LOCK = "up.lock"  # in the store: locked while `up` runs, with the addresses of its servers
ANSWER_SECONDS = 10.0  # a loaded server takes seconds to answer
LOST_SECONDS = 900
"""A run without a heartbeat for so long is Crashed; it outlives a server for eight minutes."""
SETTINGS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
)
NO_TELEMETRY, CLIENT = SETTINGS["every"], SETTINGS["client"]


def build_client_environment(store: Path, api_url: str = "") -> dict[str, str]:
    """Return the environment of every process of a run."""
    url = {"PREFECT_API_URL": api_url} if api_url else {}
    return {**NO_TELEMETRY, **CLIENT, "PREFECT_HOME": str(store / "prefect"), **url}


def read_password(store: Path) -> str:
    """Return `admin:PASSWORD` of a store; the first call makes it, for this user alone."""
    path = store / PASSWORD_FILE
    store.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write(f"admin:{secrets.token_urlsafe(24)}\n")
    with refuse(PermissionError, message=f"{path}: only the user who made it may read it"):
        return path.read_text(encoding="utf-8").strip()


def build_prefect_access(store: Path) -> dict[str, str]:
    """Return the environment of Prefect's clients that know the store's password."""
    return {"PREFECT_API_AUTH_STRING": read_password(store)}


def build_mlflow_access(store: Path) -> dict[str, str]:
    """Return the environment of MLflow's clients that know the store's password."""
    user, _, password = read_password(store).partition(":")
    return {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}


@contextmanager
def hold_store(store: Path, addresses: Mapping[str, str]) -> Iterator[None]:
    """Hold the store for one `up`, with its addresses; UserError where another `up` holds it."""
    with open(store / LOCK, "a+", encoding="utf-8") as lock:
        if not try_lock(lock):
            lock.seek(0)
            raise UserError(f"it is up already: {lock.read()}", "store", store)
        lock.truncate(0)
        json.dump({**addresses, "process": os.getpid()}, lock)
        lock.flush()
        yield


def find_running_servers(store: Path) -> dict[str, str]:
    """Return the addresses of the servers that `up` keeps for this store, if they answer, and give
    this process's clients their password.
    """
    with suppress(FileNotFoundError), open(store / LOCK, encoding="utf-8") as lock:
        if try_lock(lock):
            return {}
        state = json.load(lock)
        if is_healthy(f"{state['prefect']}/api/health"):
            if not os.environ.get("PREFECT_API_URL"):  # else it names a server elsewhere
                os.environ.update(build_prefect_access(store))
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                os.environ.update(build_mlflow_access(store))
            return {name: state[name] for name in ("prefect", "mlflow")}
    return {}


def find_free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def is_healthy(url: str) -> bool:
    """Return whether a server answers here, if only that it wants a password."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError as refusal:
        return refusal.code < 500
    except (OSError, ValueError):
        return False


def check_named_server(variable: str) -> None:
    """Raise JobFailed if the server that a variable names is away: clients wait for minutes."""
    parts = urlsplit(os.environ.get(variable, ""))
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    if parts.scheme.startswith("http") and not is_healthy(f"{address}/health"):
        about = "start that server, or unset the variable"
        raise JobFailed(f"{variable}: no answer from {address}; {about}")


if __name__ == "__main__":
    sys.exit(not is_healthy(sys.argv[1]))
