"""Who holds a store: the lock and `servers.json` of `amazon-electra up`, and if it still lives.

A process is known by its number and its birth: after a crash or a reboot the number alone may be
another process's.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from beam_jobs.job.errors import UserError
from beam_jobs.job.locks import try_lock

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ROUNDING_SECONDS = 1.0


def identify_this_process() -> dict[str, Any]:
    """Return what this process writes into a file to be found by."""
    born = read_birth_seconds(psutil.Process())
    return {"pid": os.getpid(), "born": born, "boot": read_boot_id()}


def read_birth_seconds(process: psutil.Process) -> float:
    """Return the seconds from the machine's start to the process's.

    They stay the same when the clock is set.
    """
    return process.create_time() - psutil.boot_time()


def read_boot_id() -> str:
    """Return what tells one start of the machine from another."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else f"{psutil.boot_time():.0f}"


def find_live_owner(file: Path) -> psutil.Process | None:
    """Return the process that identified itself in this file, if it lives."""
    with suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        owner = json.loads(file.read_text())
        process = psutil.Process(owner["pid"])
        apart = abs(owner["born"] - read_birth_seconds(process))
        is_same = owner["boot"] == read_boot_id() and apart < ROUNDING_SECONDS
        if is_same and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


@contextmanager
def hold_store(store: Path) -> Iterator[None]:
    """Hold the store for one `up`; remove the `servers.json` of an earlier one, and our own."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        lock = open(store / "up.lock", "a+")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(
            f"--store {store}: cannot be written: {error.strerror}; choose another folder"
        ) from None
    with lock:
        if not try_lock(lock):
            raise store_in_use_error(store)
        lock.truncate(0)
        lock.write(json.dumps(identify_this_process()))
        lock.flush()
        (store / "servers.json").unlink(missing_ok=True)
        try:
            yield
        finally:
            (store / "servers.json").unlink(missing_ok=True)


def store_in_use_error(store: Path) -> UserError:
    """Return the error of a second `up` for a store."""
    return UserError(f"--store {store}: it is up already; `amazon-electra status` tells where")


def is_up(store: Path) -> bool:
    """Return whether a process holds the store."""
    if not (store / "up.lock").exists():
        return False
    with open(store / "up.lock", "a") as lock:
        return not try_lock(lock)


def read_server_state(store: Path) -> dict[str, Any]:
    """Return the servers' addresses and the identity of the `up` that wrote them; empty if it died.

    `up` writes them once all is well.
    """
    if not find_live_owner(store / "servers.json"):
        return {}
    return json.loads((store / "servers.json").read_text())
