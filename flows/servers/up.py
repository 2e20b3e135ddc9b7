"""`amazon-electra up`, `status`, `down`: both servers and the deployments.

`up` holds a lock on the store and writes `servers.json`; `status` and `down` read those two. When
one of the processes ends, `up` says so and ends with an error; starting it again is a service
manager's job. Everything it starts ends with it, however it ends.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT, Child
from amazon_electra.flows.servers import health, settings
from amazon_electra.flows.servers.health import ServerFailed, is_healthy, wait_until_healthy
from amazon_electra.flows.servers.mlflow_server import start_mlflow_server
from amazon_electra.flows.servers.prefect_server import start_prefect_server
from amazon_electra.flows.servers.settings import HOST, READY_FILE
from amazon_electra.flows.servers.store_lock import (
    find_owner,
    hold_store,
    is_up,
    read_server_state,
    store_in_use_error,
)

WATCH_SECONDS = 1.0
DOWN_SECONDS = 120.0
"""Three processes, one after the other, each with the grace of its jobs; and as much again for a
loaded machine.
"""
HEALTH_PATHS = {"prefect": "/api/health", "mlflow": "/health"}


def run_servers(store: Path, prefect_port: int, mlflow_port: int) -> None:
    """Start everything; return when interrupted, raise ServerFailed when a process ends."""
    health.interrupt_on_signals(signal.SIGTERM, signal.SIGHUP)
    with hold_store(store):
        check_ports(prefect_port, mlflow_port)
        settings.read_run_limit()
        addresses = {
            "prefect": f"http://{HOST}:{prefect_port}",
            "mlflow": f"http://{HOST}:{mlflow_port}",
        }
        os.environ.update(settings.build_client_environment(store, f"{addresses['prefect']}/api"))
        os.environ.update(settings.build_admin_environment())
        running: dict[str, Child] = {}

        def start(name: str, child: Child, is_well: Callable[[], bool]) -> None:
            running[name] = child
            wait_until_healthy(name, child, is_well)
            print(f"{name} is up", file=sys.stderr, flush=True)

        def answers(name: str) -> Callable[[], bool]:
            return partial(is_healthy, addresses[name] + HEALTH_PATHS[name])

        try:  # in the order in which they need each other
            start("Prefect server", start_prefect_server(store, prefect_port), answers("prefect"))
            start("MLflow server", start_mlflow_server(store, mlflow_port), answers("mlflow"))
            served = (store / READY_FILE).exists
            start("deployments", start_deployments(store, mlflow_port), served)
            state = {**addresses, "pid": os.getpid(), "started": time.time()}
            write_json(store / "servers.json", state)
            print_addresses(addresses)
            while True:
                time.sleep(WATCH_SECONDS)
                for name, process in running.items():
                    if process.has_ended():
                        cause = f"{name} ended: {process.find_cause()}"
                        raise ServerFailed(f"{cause} (log: {process.log}); `up` ends with it")
        except KeyboardInterrupt:
            print("ending", file=sys.stderr, flush=True)
        finally:
            for process in reversed(running.values()):
                process.end()


def start_deployments(store: Path, mlflow_port: int) -> Child:
    """Start the process that serves the deployments."""
    (store / READY_FILE).unlink(missing_ok=True)
    command = [sys.executable, "-m", "amazon_electra.flows.runs.serve", str(store)]
    environment = {
        "MLFLOW_TRACKING_URI": f"http://{HOST}:{mlflow_port}",
        "PREFECT_RUNNER_POLL_FREQUENCY": "3",
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
    }
    return Child(command, store / "logs" / "deployments.log", environment)


def start_detached(store: Path, words: list[str]) -> None:
    """Start `up` as a process of its own and wait until it is well."""
    if is_up(store):
        raise store_in_use_error(store)
    log = store / "logs" / "up.log"
    log.parent.mkdir(exist_ok=True)
    with open(log, "ab") as output:
        log_start = output.tell()
        command = [sys.executable, "-m", "amazon_electra.flows.cli.main", "up", *words]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | PYTHON_ENVIRONMENT,
            start_new_session=True,
        )
    print(f"starting (log: {log})", file=sys.stderr, flush=True)
    shown = 0
    while (state := read_server_state(store)).get("pid") != process.pid:
        code = process.poll()  # before the last look at the log
        lines = log.read_bytes()[log_start:].decode(errors="replace").splitlines()
        for line in lines[shown:]:
            if line.endswith(" is up"):
                print(line, file=sys.stderr, flush=True)
        shown = len(lines)
        if code is not None:  # the error that it would have ended with in this terminal
            last = next((line for line in reversed(lines) if line), "it ended without a word")
            if code == 2:
                raise UserError(last.removeprefix("error: "))
            raise ServerFailed(last.removeprefix("failed: "))
        time.sleep(0.2)
    print_addresses(state)


def print_status(store: Path) -> bool:
    """Print a line for each part; return whether all is well."""
    if not is_up(store):
        print(f"{store} is down; `amazon-electra up --store {store}` starts it")
        return False
    state = read_server_state(store)
    if not state:
        print(f"{store} is starting")
        return False
    health_by_name = {name: is_healthy(state[name] + path) for name, path in HEALTH_PATHS.items()}
    for name, is_well in health_by_name.items():
        print(f"{name:<12}{state[name]}  {'well' if is_well else 'gives no answer'}")
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state["started"]))
    print(f"{'since':<12}{since}, process {state['pid']}")
    return all(health_by_name.values())


def stop_servers(store: Path) -> None:
    """End what `up` started, or is starting, and wait for it; UserError if it is another user's."""
    deadline, terminated = time.monotonic() + DOWN_SECONDS, None
    while is_up(store):
        owner = find_owner(store)
        if owner and owner != terminated:
            with suppress(psutil.NoSuchProcess):
                try:
                    owner.terminate()
                except psutil.AccessDenied:
                    raise UserError(
                        f"process {owner.pid} is another user's; ask them", "store", store
                    ) from None
            terminated = owner
        if time.monotonic() > deadline:
            who = f"process {owner.pid}" if owner else "the process that holds up.lock"
            raise ServerFailed(
                f"{store} is still up after {DOWN_SECONDS:.0f} s: {who} does not end; kill it"
            )
        time.sleep(0.1)
    print(f"{store} is down")


def check_ports(prefect_port: int, mlflow_port: int) -> None:
    """Raise UserError unless both ports exist, differ and are free."""
    if prefect_port == mlflow_port:
        raise UserError(
            f"--mlflow-port {mlflow_port}: the Prefect server has this port; choose another port"
        )
    for option, port in (("--prefect-port", prefect_port), ("--mlflow-port", mlflow_port)):
        if not 1 <= port <= 65535:
            raise UserError(
                f"{option} {port}: a port is a number from 1 to 65535; choose another port"
            )
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise UserError(f"{option} {port}: {error.strerror}; choose another port") from None


def print_addresses(addresses: dict[str, Any]) -> None:
    """Print where the UIs are."""
    print(f"Prefect UI  {addresses['prefect']}   start runs: Deployments → domain-adaptation → Run")
    print(f"MLflow UI   {addresses['mlflow']}/#/experiments", flush=True)
