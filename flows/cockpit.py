"""`amazon-electra up`, `status`, `down`: both servers and the served deployments, kept alive by one process.

That process holds a lock on the store and writes `servers.json`; whoever wants to know asks those two. Everything it
starts ends with it, however it ends.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from beam_jobs.command import UserMistake
from flows import servers
from flows.processes import Child
from flows.servers import HOST, ServerFailed
from model.json_file import write_json

WATCH_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
"""Between two starts of a process that dies again and again."""
FORGOTTEN_SECONDS = 600.0
"""After so long a death is no longer held against a process."""
OLD_DATABASE = {
    "out-of-date database schema": "the MLflow database is of an older version: copy it, then `mlflow db upgrade URI`",
    "Can't locate revision": "the database is newer than the installed package: upgrade that, or use another --store",
    "no such table": "the database is not complete: use another --store, or put back a copy of it",
}


@dataclass
class Service:
    """One of the processes: how it is started, and how one sees that it is well."""

    name: str
    start: Callable[[], Child]
    well: Callable[[], bool]
    process: Child | None = None
    deaths: list[float] = field(default_factory=list)
    again_at: float | None = None

    def begin(self) -> None:
        """Starts it and waits until it is well."""
        self.process = self.start()
        deadline = time.monotonic() + servers.START_SECONDS
        while not self.well():
            if self.process.over():
                raise ServerFailed(f"{self.name} did not start: {explained(self.process)} (log: {self.process.log})")
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"{self.name} gave no answer in {servers.START_SECONDS:.0f} s (log: {self.process.log})"
                )
            time.sleep(0.1)

    def revive(self) -> None:
        """Starts it again if it died, ever later if it dies again: what runs meanwhile does without it."""
        if self.process is None or not self.process.over():
            return
        now = time.monotonic()
        if self.again_at is None:
            self.deaths = [at for at in self.deaths if now - at < FORGOTTEN_SECONDS] + [now]
            wait = min(LONGEST_WAIT_SECONDS, 2.0 ** (len(self.deaths) - 1) - 1)
            self.again_at = now + wait
            say(f"{self.name} ended: {explained(self.process)}; starting it again in {wait:.0f} s")
        if now >= self.again_at:
            self.process, self.again_at = self.start(), None

    def end(self) -> None:
        if self.process:
            self.process.end()


def up(store: Path, prefect_port: int, mlflow_port: int) -> None:
    """Starts everything, watches over it, and returns when told to end."""
    servers.end_at_signals(signal.SIGTERM, signal.SIGHUP)
    with held(store), told_later(store):
        for name, port in (("--prefect-port", prefect_port), ("--mlflow-port", mlflow_port)):
            check_port(name, port)
        addresses = {"prefect": f"http://{HOST}:{prefect_port}", "mlflow": f"http://{HOST}:{mlflow_port}"}
        os.environ.update(servers.environment(store, f"{addresses['prefect']}/api"))
        services = services_of(store, prefect_port, mlflow_port)
        try:
            for service in services:
                service.begin()
                say(f"{service.name} is up")
            write_json(store / "servers.json", {**addresses, "pid": os.getpid(), "started": time.time()})
            print_addresses(addresses)
            while True:
                time.sleep(WATCH_SECONDS)
                for service in services:
                    service.revive()
        except KeyboardInterrupt:
            say("ending")
        finally:
            for service in reversed(services):
                service.end()


def services_of(store: Path, prefect_port: int, mlflow_port: int) -> list[Service]:
    """In the order in which they need each other."""
    ready = store / "logs" / "deployments.ready"
    ready.unlink(missing_ok=True)
    serving = [sys.executable, "-m", "flows.deployments", "serve", str(store)]
    tracking = {"MLFLOW_TRACKING_URI": f"http://{HOST}:{mlflow_port}", "PREFECT_RUNNER_POLL_FREQUENCY": "3"}
    return [
        Service(
            "Prefect server",
            lambda: servers.prefect_server(store, prefect_port),
            lambda: servers.answers(f"http://{HOST}:{prefect_port}/api/health"),
        ),
        Service(
            "MLflow server",
            lambda: servers.mlflow_server(store, mlflow_port),
            lambda: servers.answers(f"http://{HOST}:{mlflow_port}/health"),
        ),
        Service(
            "deployments",
            lambda: Child(serving, store / "logs" / "deployments.log", tracking),
            lambda: ready.exists(),
        ),
    ]


@contextmanager
def held(store: Path) -> Iterator[None]:
    """One `up` for each store."""
    store.mkdir(parents=True, exist_ok=True)
    with open(store / "up.lock", "a") as lock:
        if not locked(lock):
            raise UserMistake(f"--store {store}: it is up already; `amazon-electra status` tells where")
        yield


@contextmanager
def told_later(store: Path) -> Iterator[None]:
    """Takes the addresses away at the end, so that nobody looks for a server that is gone."""
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            (store / "servers.json").unlink()


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


def detached(store: Path, words: list[str]) -> None:
    """Starts `up` as a process of its own and waits until it is well."""
    if is_up(store):
        raise UserMistake(f"--store {store}: it is up already; `amazon-electra status` tells where")
    log = store / "logs" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        command = [sys.executable, "-m", "flows.cli", "up", *words]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while not (found := state(store)):
        if process.poll() is not None:
            last = log.read_text().strip().splitlines()[-1:]
            raise ServerFailed(
                (last or ["it ended without a word"])[0].removeprefix("failed: ").removeprefix("error: ")
            )
        time.sleep(0.2)
    print_addresses(found)


def state(store: Path) -> dict[str, Any]:
    """What `up` wrote when all was well."""
    try:
        return json.loads((store / "servers.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}


def status(store: Path) -> bool:
    """Prints a line for each part; whether all is well."""
    if not is_up(store):
        print(f"{store} is down; `amazon-electra up --store {store}` starts it")
        return False
    found = state(store)
    if not found:
        print(f"{store} is starting")
        return False
    health = {"prefect": "/api/health", "mlflow": "/health"}
    well = {name: servers.answers(found[name] + path) for name, path in health.items()}
    for name, fine in well.items():
        print(f"{name:<12}{found[name]}  {'well' if fine else 'gives no answer'}")
    print(f"{'deployments':<12}{'served' if (store / 'logs' / 'deployments.ready').exists() else 'not served'}")
    print(
        f"{'since':<12}{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(found['started']))}, process {found['pid']}"
    )
    return all(well.values())


def down(store: Path) -> None:
    """Ends what `up` started, and waits for it."""
    found = state(store)
    if not is_up(store) or not found:
        print(f"{store} is down")
        return
    with suppress(ProcessLookupError):
        os.kill(found["pid"], signal.SIGTERM)
    while is_up(store):
        time.sleep(0.1)
    print(f"{store} is down")


def check_port(option: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as taken:
            raise UserMistake(f"{option} {port}: {taken.strerror}; choose another port") from None


def explained(process: Child) -> str:
    """What ended it, or what its last words mean where we know."""
    said = process.said()
    return next((meaning for words, meaning in OLD_DATABASE.items() if words in said), process.cause())


def print_addresses(found: dict[str, Any]) -> None:
    print(f"Prefect UI  {found['prefect']}   start runs: Deployments → domain-adaptation → Run")
    print(f"MLflow UI   {found['mlflow']}", flush=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
