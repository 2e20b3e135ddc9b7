"""The password of a store's servers, and where they are while `up` runs."""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.locks import try_lock
from amazon_electra.flows.servers.health import is_healthy

PASSWORD_FILE = "password"
LOCK = "up.lock"  # in the store: locked while `up` runs, with the addresses of its servers


def read_password(store: Path) -> str:
    """Return `admin:PASSWORD` of the store's servers; the first call makes it, for this user alone.

    UserError where this user may not read it.
    """
    path = store / PASSWORD_FILE
    store.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write(f"admin:{secrets.token_urlsafe(24)}\n")
    try:
        return path.read_text(encoding="utf-8").strip()
    except PermissionError:
        raise UserError(f"{path}: only the user who made it may read it") from None


def build_prefect_access(store: Path) -> dict[str, str]:
    """Return the environment of Prefect's clients that know the store's password."""
    return {"PREFECT_API_AUTH_STRING": read_password(store)}


def build_mlflow_access(store: Path) -> dict[str, str]:
    """Return the environment of MLflow's clients that know the store's password."""
    user, _, password = read_password(store).partition(":")
    return {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}


@contextmanager
def hold_store(store: Path, addresses: Mapping[str, str]) -> Iterator[None]:
    """Hold the store for one `up` and write down where its servers are; UserError where another
    `up` holds it.
    """
    with open(store / LOCK, "a+", encoding="utf-8") as lock:
        if not try_lock(lock):
            lock.seek(0)
            raise UserError(f"it is up already: {lock.read()}", "store", store)
        lock.truncate(0)
        json.dump({**addresses, "process": os.getpid()}, lock)
        lock.flush()
        yield


def find_running_servers(store: Path) -> dict[str, str]:
    """Return the addresses of the servers that `up` keeps for this store, if they answer.

    This process's clients get their password, unless the environment names a server elsewhere.
    """
    with suppress(FileNotFoundError), open(store / LOCK, encoding="utf-8") as lock:
        if try_lock(lock):
            return {}
        state = json.load(lock)
        if is_healthy(f"{state['prefect']}/api/health"):
            if not os.environ.get("PREFECT_API_URL"):
                os.environ.update(build_prefect_access(store))
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                os.environ.update(build_mlflow_access(store))
            return {name: state[name] for name in ("prefect", "mlflow")}
    return {}
