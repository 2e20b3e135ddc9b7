"""Who holds a store: the lock and `servers.json` of `amazon-electra up`."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.locks import try_lock


@contextmanager
def hold_store(store: Path) -> Iterator[None]:
    """Hold the store for one `up`; UserError where another one holds it."""
    with open(store / "up.lock", "a+", encoding="utf-8") as lock:
        if not try_lock(lock):
            raise store_in_use_error(store)
        lock.truncate(0)
        lock.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        lock.flush()
        (store / "servers.json").unlink(missing_ok=True)
        try:
            yield
        finally:
            (store / "servers.json").unlink(missing_ok=True)


def store_in_use_error(store: Path) -> UserError:
    """Return the error of a second `up` for a store."""
    return UserError("it is up already; `amazon-electra status` shows where", "store", store)


def is_up(store: Path) -> bool:
    """Return whether a process holds the store."""
    if not (store / "up.lock").exists():
        return False
    with open(store / "up.lock", "ab") as lock:
        return not try_lock(lock)


def find_owner(store: Path) -> psutil.Process | None:
    """Return the process of this host that holds the store, if one does."""
    with suppress(OSError, ValueError, psutil.Error):
        if is_up(store):
            owner = json.loads((store / "up.lock").read_text(encoding="utf-8"))
            if owner["host"] == socket.gethostname():
                return psutil.Process(owner["pid"])
    return None


def read_server_state(store: Path) -> dict[str, Any]:
    """Return what `up` wrote once all was well: the servers' addresses, its number, its start.

    Empty where it has not, or has ended.
    """
    with suppress(FileNotFoundError):
        if is_up(store):
            return json.loads((store / "servers.json").read_text(encoding="utf-8"))
    return {}
