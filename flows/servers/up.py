"""`amazon-electra up`: both servers and the deployments, in the foreground.

When one of the processes ends, `up` says so and ends with an error; starting it again is a service
manager's job. Everything it starts ends with it, however it ends.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.runner.processes import Child, interrupt_on_signals
from amazon_electra.flows.servers.access import (
    PASSWORD_FILE,
    build_mlflow_access,
    build_prefect_access,
    hold_store,
)
from amazon_electra.flows.servers.health import ServerFailed, is_healthy, wait_until_healthy
from amazon_electra.flows.servers.mlflow_server import start_mlflow_server
from amazon_electra.flows.servers.prefect_server import start_prefect_server
from amazon_electra.flows.servers.settings import HOST, READY_FILE, build_client_environment

WATCH_SECONDS = 1.0


def run_servers(store: Path, prefect_port: int, mlflow_port: int) -> None:
    """Start everything; return when interrupted, raise ServerFailed when a process ends."""
    interrupt_on_signals(signal.SIGTERM, signal.SIGHUP)
    prefect, mlflow = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    running: dict[str, Child] = {}
    with ExitStack() as stack:
        stack.enter_context(hold_store(store, {"prefect": prefect, "mlflow": mlflow}))
        check_ports(prefect_port, mlflow_port)
        os.environ.update(build_client_environment(store, f"{prefect}/api"))
        os.environ.update(build_prefect_access(store) | build_mlflow_access(store))
        os.environ["MLFLOW_TRACKING_URI"] = mlflow

        def start(name: str, child: Child, is_well: Callable[[], bool]) -> None:
            running[name] = child
            stack.callback(child.end)
            wait_until_healthy(name, child, is_well)
            print(f"{name} is up", file=sys.stderr, flush=True)

        try:  # in the order in which they need each other
            server = start_prefect_server(store, prefect_port)
            start("Prefect server", server, lambda: is_healthy(f"{prefect}/api/health"))
            server = start_mlflow_server(store, mlflow_port)
            start("MLflow server", server, lambda: is_healthy(f"{mlflow}/health"))
            start("deployments", start_deployments(store), (store / READY_FILE).exists)
            print(f"Prefect UI  {prefect}   start runs: Deployments → domain-adaptation → Run")
            print(f"MLflow UI   {mlflow}/#/experiments")
            password = store / PASSWORD_FILE
            print(f"password    {password}   Prefect asks for the whole line", flush=True)
            while True:
                time.sleep(WATCH_SECONDS)
                for name, child in running.items():
                    if child.poll() is not None:
                        cause = f"{name} ended: {child.find_cause()}"
                        raise ServerFailed(f"{cause} (log: {child.log}); `up` ends with it")
        except KeyboardInterrupt:
            print("ending", file=sys.stderr, flush=True)


def start_deployments(store: Path) -> Child:
    """Start the process that serves the deployments."""
    (store / READY_FILE).unlink(missing_ok=True)
    command = [sys.executable, "-m", "amazon_electra.flows.ui.deployments", str(store)]
    environment = {
        "PREFECT_RUNNER_POLL_FREQUENCY": "3",
        "PREFECT_RUNNER_PROCESS_LIMIT": os.environ.get("PREFECT_RUNNER_PROCESS_LIMIT", "16"),
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
    }
    return Child(command, store / "logs" / "deployments.log", environment)


def check_ports(*ports: int) -> None:
    """Raise UserError where another server has a port, and would answer for ours, or both are to
    have one.
    """
    if len({*ports}) < len(ports):
        raise UserError(f"port {ports[0]}: two servers cannot share it; choose another port")
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError) as error:
                raise UserError(f"port {port}: {error}; choose another port") from None
