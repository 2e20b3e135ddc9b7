"""`amazon-electra up`, `status`, `down`: both servers and the served deployments, kept alive by one process.

That process holds a lock on the store and writes `servers.json`; whoever wants to know asks those two. Everything it
starts ends with it, however it ends.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from beam_jobs.command import UserMistake
from flows import servers
from flows.deployments import READY, runs_at_once
from flows.holding import bearer, held, is_up, mark, state, taken
from flows.processes import Child
from flows.servers import HOST, ServerFailed
from flows.service import Service, say, trim
from model.json_file import write_json

WATCH_SECONDS = 1.0
HEALTH_SECONDS = 10.0
"""For an answer: a server of a loaded machine is slow, and not to be taken for one that hangs."""
DOWN_SECONDS = 120.0
"""Three services, one after the other, each with the grace of its jobs; and as much again for a loaded machine."""


def up(store: Path, prefect_port: int, mlflow_port: int) -> None:
    """Starts everything, watches over it, and returns when told to end."""
    servers.end_at_signals(signal.SIGTERM, signal.SIGHUP)
    with held(store):
        check_ports(prefect_port, mlflow_port)
        runs_at_once()
        addresses = {"prefect": f"http://{HOST}:{prefect_port}", "mlflow": f"http://{HOST}:{mlflow_port}"}
        os.environ.update(servers.environment(store, f"{addresses['prefect']}/api"))
        services = services_of(store, prefect_port, mlflow_port)
        try:
            for service in services:
                service.begin()
                say(f"{service.name} is up")
            write_json(store / "servers.json", {**addresses, **mark(), "started": time.time()})
            print_addresses(addresses)
            while True:
                time.sleep(WATCH_SECONDS)
                for service in services:
                    service.watch()
                trim(log_of_up(store))
        except KeyboardInterrupt:
            say("ending")
        finally:
            for service in reversed(services):
                service.end()


def services_of(store: Path, prefect_port: int, mlflow_port: int) -> list[Service]:
    """In the order in which they need each other."""
    return [
        Service(
            "Prefect server",
            lambda: servers.prefect_server(store, prefect_port),
            lambda: servers.answers(f"http://{HOST}:{prefect_port}/api/health", HEALTH_SECONDS),
        ),
        Service(
            "MLflow server",
            lambda: servers.mlflow_server(store, mlflow_port),
            lambda: servers.answers(f"http://{HOST}:{mlflow_port}/health", HEALTH_SECONDS),
        ),
        Service("deployments", lambda: serving(store, mlflow_port), lambda: served(store)),
    ]


def serving(store: Path, mlflow_port: int) -> Child:
    """Starts the process that serves the deployments."""
    (store / READY).unlink(missing_ok=True)
    command = [sys.executable, "-m", "flows.deployments", "serve", str(store)]
    settings = {"MLFLOW_TRACKING_URI": f"http://{HOST}:{mlflow_port}", "PREFECT_RUNNER_POLL_FREQUENCY": "3"}
    return Child(command, store / "logs" / "deployments.log", settings)


def served(store: Path) -> bool:
    """Whether the process that said it serves the deployments still lives."""
    return bearer(store / READY) is not None


def log_of_up(store: Path) -> Path:
    """Of an `up` that was detached."""
    return store / "logs" / "up.log"


def detached(store: Path, words: list[str]) -> None:
    """Starts `up` as a process of its own and waits until it is well."""
    if is_up(store):
        raise taken(store)
    log = log_of_up(store)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = open(log, "ab")  # noqa: SIM115 - closed below
    except OSError as refused:
        raise UserMistake(f"--store {store}: {refused.strerror}; choose another folder") from None
    with output:
        begin = output.tell()
        command = [sys.executable, "-m", "flows.cli", "up", *words]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while (found := state(store)).get("pid") != process.pid:
        if process.poll() is not None:
            raise ended(process.returncode, log.read_bytes()[begin:].decode(errors="replace"))
        time.sleep(0.2)
    print_addresses(found)


def ended(code: int, said: str) -> Exception:
    """What `up` would have told in this terminal."""
    last = (said.strip().splitlines() or ["it ended without a word"])[-1]
    if code == 2:
        return UserMistake(last.removeprefix("error: "))
    return ServerFailed(last.removeprefix("failed: "))


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
    well["deployments"] = served(store)
    print(f"{'deployments':<12}{'served' if well['deployments'] else 'not served'}")
    print(
        f"{'since':<12}{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(found['started']))}, process {found['pid']}"
    )
    return all(well.values())


def down(store: Path) -> None:
    """Ends what `up` started, or is starting, and waits for it."""
    deadline, told = time.monotonic() + DOWN_SECONDS, None
    while is_up(store):
        process = bearer(store / "up.lock")
        if process and process != told:
            tell_to_end(store, process)
            told = process
        if time.monotonic() > deadline:
            who = f"process {process.pid}" if process else "the process that holds up.lock"
            raise ServerFailed(f"{store} is still up after {DOWN_SECONDS:.0f} s: {who} does not end; kill it")
        time.sleep(0.1)
    print(f"{store} is down")


def tell_to_end(store: Path, process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        try:
            process.terminate()
        except psutil.AccessDenied:
            raise UserMistake(f"--store {store}: process {process.pid} is another user's; ask them") from None


def check_ports(prefect_port: int, mlflow_port: int) -> None:
    if prefect_port == mlflow_port:
        raise UserMistake(f"--mlflow-port {mlflow_port}: it is the Prefect server's too; choose another port")
    for option, port in (("--prefect-port", prefect_port), ("--mlflow-port", mlflow_port)):
        if not 1 <= port <= 65535:
            raise UserMistake(f"{option} {port}: a port is a number from 1 to 65535; choose another port")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as refused:
                raise UserMistake(f"{option} {port}: {refused.strerror}; choose another port") from None


def print_addresses(found: dict[str, Any]) -> None:
    print(f"Prefect UI  {found['prefect']}   start runs: Deployments → domain-adaptation → Run")
    print(f"MLflow UI   {found['mlflow']}", flush=True)
