"""Ports and health checks of the servers: `python -m amazon_electra.flows.servers.health URL`
fails where one does not answer.
"""

import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from amazon_electra.beam_jobs.core.errors import JobFailed
from amazon_electra.flows.servers.settings import HOST

if TYPE_CHECKING:  # it loads the store
    from amazon_electra.flows.runner.processes import Child

START_SECONDS = 300.0  # the first start creates the database: 8 s on two idle cores
ANSWER_SECONDS = 10.0  # a loaded server takes seconds to answer
POLL_SECONDS = 1.0


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
    """Raise JobFailed if the server that an environment variable names does not answer: its clients
    would try again for minutes.
    """
    parts = urlsplit(os.environ.get(variable, ""))
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    if parts.scheme.startswith("http") and not is_healthy(f"{address}/health"):
        about = "start that server, or unset the variable"
        raise JobFailed(f"{variable}: no answer from {address}; {about}")


def wait_until_healthy(name: str, process: "Child", check: Callable[[], bool]) -> None:
    """Wait until `check` is true; raise JobFailed if the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not check():
        is_over = process.poll() is not None
        if is_over or time.monotonic() > deadline:
            cause = process.find_cause() if is_over else "no answer"
            raise JobFailed(f"{name} did not start: {cause} (log: {process.log})")
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(not is_healthy(sys.argv[1]))
