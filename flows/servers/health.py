"""Ports and health checks of the servers: `python -m amazon_electra.flows.servers.health URL`
fails where one does not answer.
"""

import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from amazon_electra.flows.runner.processes import Child, Terminated
from amazon_electra.flows.servers.settings import HOST

START_SECONDS = 300.0
"""The first start creates the database, which took 8 s on two idle cores."""
LAST_SECONDS = 10.0
"""From the second signal to the end of a process that does not end by itself."""
ANSWER_SECONDS = 10.0
"""A loaded server takes seconds to answer; it is not away for that."""


class ServerFailed(RuntimeError):
    """A server did not come up; the message names its log."""


def interrupt_on_signals(*signals: int) -> None:
    """Raise KeyboardInterrupt in this process for Ctrl-C, and Terminated, which is one, for these
    signals; a second one ends it (`count_signals`).

    SIGINT itself is restored too: a shell that starts a command in the background has it ignored.
    """

    def raise_terminated(number: int, _: Any) -> None:
        raise Terminated

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signals:
        signal.signal(number, raise_terminated)
    count_signals(signal.SIGINT, *signals)


def count_signals(*signals: int) -> Callable[[], None]:
    """Let a second one of these signals end this process within `LAST_SECONDS`, whatever it waits
    for; its jobs end with it. Return a function that ends the counting. Main thread only.

    No handler is replaced: a run that Prefect cancels is Cancelled, and not Crashed, only while
    Prefect's own handler is in place.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def count() -> None:
        received = 0
        with reader, writer:
            while number := reader.recv(1):
                received += number[0] in signals
                if received == 2:
                    time.sleep(LAST_SECONDS)
                    os._exit(128 + number[0])

    def stop() -> None:
        signal.set_wakeup_fd(before)
        writer.shutdown(socket.SHUT_WR)

    threading.Thread(target=count, daemon=True).start()
    return stop


def find_free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
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
    """Raise ServerFailed if the server that an environment variable names does not answer; without
    this its clients would try again for minutes.
    """
    parts = urlsplit(os.environ.get(variable, ""))
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    if parts.scheme.startswith("http") and not is_healthy(f"{address}/health"):
        raise ServerFailed(
            f"{variable}: no answer from {address}; start that server, or unset the variable"
        )


POLL_SECONDS = 1.0


def wait_until_healthy(name: str, process: Child, check: Callable[[], bool]) -> None:
    """Wait until `check` is true; raise ServerFailed if the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not check():
        if process.has_ended():
            cause = process.find_cause()
            raise ServerFailed(f"{name} did not start: {cause} (log: {process.log})")
        if time.monotonic() > deadline:
            raise ServerFailed(
                f"{name} gave no answer in {START_SECONDS:.0f} s (log: {process.log})"
            )
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(not is_healthy(sys.argv[1]))
