"""Ports and health checks of the servers, and what it means when one does not start."""

import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from flows.runner.processes import Child
from flows.servers.settings import HOST

START_SECONDS = 180.0
"""The first start creates the database, which took 8 s on two idle cores."""
ANSWER_SECONDS = 10.0
"""A loaded server takes seconds to answer; it is not away for that."""
DATABASE_REMEDIES = {
    "out-of-date database schema": "the MLflow database is of an older version: copy it, "
    "then `mlflow db upgrade URI`",
    "Can't locate revision": "the database is newer than the installed package: upgrade that, "
    "or use another --store",
    "no such table": "the database is not complete: use another --store, or put back a copy of it",
}
"""What to do, by the words of the last lines of a server that ended."""


class ServerFailed(RuntimeError):
    """A server did not come up; the message names its log."""


def interrupt_on_signals(*signals: int) -> None:
    """Raise KeyboardInterrupt in this process for these signals, as Ctrl-C does.

    SIGINT itself is restored too: a shell that starts a command in the background has it ignored.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signals:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))


def find_free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_healthy(url: str) -> bool:
    """Return whether a server answers here with success, or with a request for a password."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError as refusal:
        return refusal.code == 401
    except (OSError, ValueError):
        return False


def wait_until_healthy(name: str, process: Child, check: Callable[[], bool]) -> None:
    """Wait until `check` is true; raise ServerFailed if the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not check():
        if process.has_ended():
            raise ServerFailed(
                f"{name} did not start: {explain_exit(process)} (log: {process.log})"
            )
        if time.monotonic() > deadline:
            raise ServerFailed(
                f"{name} gave no answer in {START_SECONDS:.0f} s (log: {process.log})"
            )
        time.sleep(0.1)


def explain_exit(process: Child) -> str:
    """Return why a server ended: the remedy for its last words where we know one."""
    words = process.read_log_end()
    return next(
        (remedy for part, remedy in DATABASE_REMEDIES.items() if part in words),
        process.find_cause(),
    )
