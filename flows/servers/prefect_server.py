"""The Prefect server: its start, its settings, and how a process of ours connects to one.

`amazon-electra run` needs a Prefect server only while it runs. It takes the one named by
PREFECT_API_URL, else the one that `amazon-electra up` started for this store, else it starts one of
its own on the same database, so that the UI shows the run later; its password is random and known
to the run's own processes alone. A server listens on 127.0.0.1,
keeps its data in the store and opens no connection to another machine.
"""

import atexit
import logging
import os
import re
import resource
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.runner.processes import Child
from amazon_electra.flows.servers import store_lock
from amazon_electra.flows.servers.access import make_prefect_password, use_passwords
from amazon_electra.flows.servers.health import find_free_port, is_healthy, wait_until_healthy
from amazon_electra.flows.servers.settings import (
    HOST,
    build_admin_environment,
    build_client_environment,
)

log = logging.getLogger("amazon_electra")

SERVER = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage"
    ".filesystem",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
}
"""Leases in files outlive the server: kept in its memory, a restart in the middle of a training
would leave the accelerator taken for ever.
"""
WATCH_SECONDS = 2.0
MAX_PATH = 500
"""SQLite opens no file whose path is longer than 512 bytes; it adds -journal."""
MIN_FILE_BYTES = 100_000_000
"""What files must be allowed to have: a new database has 1 MB, a model some 100."""
DATABASE_NAMES = ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL")
"""Both names of the same setting."""
UNNEEDED = (
    *("SCHEDULER", "LATE_RUNS", "CANCELLATION_CLEANUP"),
    *("PAUSE_EXPIRATIONS", "TRIGGERS", "FOREMAN"),
)
"""Services that a server which lives for one run does not need."""


def start_prefect_server(store: Path, port: int, settings: Mapping[str, str] = {}) -> Child:
    """Start a Prefect server on the store; the caller waits until it answers."""
    check_database_file(store / "prefect" / "prefect.db")
    (store / "prefect").mkdir(parents=True, exist_ok=True)
    address = ["--host", HOST, "--port", str(port)]
    command = [sys.executable, "-m", "amazon_electra.flows.servers.prefect_application", *address]
    url = f"http://{HOST}:{port}/api"
    # A change needs a token, which no page but the server's own UI may read; Prefect's default
    # answers the pages of every origin.
    own = {
        "PREFECT_SERVER_UI_API_URL": url,
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{HOST}:{port},http://localhost:{port}",
        **SERVER,
    }
    for name in DATABASE_NAMES:
        if os.environ.get(name):
            own[name] = set_database_driver(os.environ[name], "asyncpg")
    environment = {**build_client_environment(store, url), **own, **settings}
    return Child(command, store / "logs" / "prefect.log", environment)


def check_database_file(file: Path) -> None:
    """Raise UserError where SQLite could not open or write the database of Prefect's server."""
    if len(str(file)) > MAX_PATH:
        raise UserError("the path is too long for SQLite; shorten it", "store", file.parents[1])
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most != resource.RLIM_INFINITY and most < MIN_FILE_BYTES:
        raise UserError(f"files may have {most:,} bytes here at most: raise it with ulimit -f")
    if file.is_file() and file.stat().st_size:
        with file.open("rb") as database:
            if database.read(16) != b"SQLite format 3\0":
                raise UserError(
                    f"{file} is not an SQLite database; move it away, and a new one is made"
                )


def set_database_driver(url: str, driver: str) -> str:
    """Return a PostgreSQL address with its driver named; other addresses stay as they are."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", f"postgresql+{driver}://", url)


def find_running_servers(store: Path) -> dict[str, str]:
    """Return the addresses of the servers that `up` keeps for this store, if they answer; this
    process's clients get their password.
    """
    state = store_lock.read_server_state(store)
    if state and is_healthy(f"{state['prefect']}/api/health"):
        use_passwords(store)
        return {name: state[name] for name in ("prefect", "mlflow")}
    return {}


def keep_running(start: Callable[[], Child], server: Child) -> Callable[[], None]:
    """Start a server again whenever it has ended; return what ends it for good."""
    over = threading.Event()

    def watch() -> None:
        running = server
        while not over.wait(WATCH_SECONDS):
            if running.has_ended():
                log.warning("the Prefect server ended (%s): started again", running.find_cause())
                running = start()
        running.end()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()

    def end() -> None:
        over.set()
        watcher.join()

    return end


def connect_prefect(store: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Set this process's environment up for a Prefect server; start one if there is none, and call
    `meanwhile` while it starts.

    It is started again if it ends, and ends last of all with this process: Prefect's own end sends
    it what still waits.
    """
    url = os.environ.get("PREFECT_API_URL")
    if not url and (servers := find_running_servers(store)):
        url = f"{servers['prefect']}/api"
    server = None
    if not url:
        port = find_free_port()
        url = f"http://{HOST}:{port}/api"
        os.environ.update(build_admin_environment())
        os.environ.update(make_prefect_password())
        names = (f"PREFECT_SERVER_SERVICES_{name}_ENABLED" for name in UNNEEDED)
        without = dict.fromkeys((*names, "PREFECT_SERVER_UI_ENABLED"), "false")
        start = partial(start_prefect_server, store, port, without)
        server = start()
        atexit.register(keep_running(start, server))
    os.environ.update(build_client_environment(store, url))
    meanwhile()
    if server:
        wait_until_healthy("the Prefect server", server, lambda: is_healthy(f"{url}/health"))
