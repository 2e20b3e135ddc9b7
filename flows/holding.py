"""Who holds a store: the lock and `servers.json` of `amazon-electra up`, and whether their process still lives.

A process is known by its number and its birth: after a crash or a reboot the number alone may be a stranger's.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import psutil

from beam_jobs.command import UserMistake

BOOT = Path("/proc/sys/kernel/random/boot_id")
ROUNDING_SECONDS = 1.0


def mark() -> dict[str, Any]:
    """What this process writes into a file to be found by."""
    return {"pid": os.getpid(), "born": born(psutil.Process()), "boot": boot()}


def born(process: psutil.Process) -> float:
    """Seconds from the machine's start, which stay the same when its clock is set."""
    return process.create_time() - psutil.boot_time()


def boot() -> str:
    """Tells one start of the machine from another."""
    return BOOT.read_text().strip() if BOOT.exists() else f"{psutil.boot_time():.0f}"


def bearer(file: Path) -> psutil.Process | None:
    """The process that left its mark in this file, if it lives."""
    with suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        left = json.loads(file.read_text())
        process = psutil.Process(left["pid"])
        same = left["boot"] == boot() and abs(left["born"] - born(process)) < ROUNDING_SECONDS
        if same and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


@contextmanager
def held(store: Path) -> Iterator[None]:
    """One `up` for each store; what an earlier one left there is taken away, and what this one leaves."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        lock = open(store / "up.lock", "a+")  # noqa: SIM115 - closed below
    except OSError as refused:
        raise UserMistake(f"--store {store}: {refused.strerror}; choose another folder") from None
    with lock:
        if not locked(lock):
            raise taken(store)
        lock.truncate(0)
        lock.write(json.dumps(mark()))
        lock.flush()
        (store / "servers.json").unlink(missing_ok=True)
        try:
            yield
        finally:
            (store / "servers.json").unlink(missing_ok=True)


def taken(store: Path) -> UserMistake:
    return UserMistake(f"--store {store}: it is up already; `amazon-electra status` tells where")


def locked(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_up(store: Path) -> bool:
    """Whether some process holds the store."""
    if not (store / "up.lock").exists():
        return False
    with open(store / "up.lock", "a") as lock:
        return not locked(lock)


def state(store: Path) -> dict[str, Any]:
    """What `up` wrote when all was well: the addresses of its servers, and its mark; empty where it is no more."""
    if not bearer(store / "servers.json"):
        return {}
    return json.loads((store / "servers.json").read_text())
