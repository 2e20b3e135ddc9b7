"""The `up` of a store: a lock that it holds, and where its servers are."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.locks import try_lock
from amazon_electra.flows.servers.access import build_mlflow_access, build_prefect_access
from amazon_electra.flows.servers.health import is_healthy

LOCK = "up.lock"
"""File in the store: locked while `up` runs, with the addresses of its servers."""


@contextmanager
def hold_store(store: Path, addresses: dict[str, str]) -> Iterator[None]:
    """Hold the store for one `up` and say where its servers are; UserError where another one holds
    it.
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
