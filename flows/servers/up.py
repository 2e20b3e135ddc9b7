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
from contextlib import ExitStack, suppress

from amazon_electra.beam_jobs.core.errors import JobFailed, UserError, require
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.runner.processes import Child, interrupt_on_signals
from amazon_electra.flows.servers.access import (
    PASSWORD_FILE,
    build_mlflow_access,
    build_prefect_access,
    hold_store,
)
from amazon_electra.flows.servers.health import POLL_SECONDS, is_healthy, wait_until_healthy
from amazon_electra.flows.servers.settings import HOST, READY_FILE, build_client_environment
from amazon_electra.flows.servers.stock import start_mlflow_server, start_prefect_server
from amazon_electra.flows.store.store import Store


def run_servers(store: Store, prefect_port: int, mlflow_port: int) -> None:
    """Start everything; return when interrupted, raise JobFailed when a process ends."""
    interrupt_on_signals(signal.SIGTERM, signal.SIGHUP)
    root, running = store.root, dict[str, Child]()
    prefect, mlflow = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    with hold_store(root, {"prefect": prefect, "mlflow": mlflow}), ExitStack() as stack:
        check_ports(prefect_port, mlflow_port)
        os.environ.update(build_client_environment(root, f"{prefect}/api"))
        os.environ.update(build_prefect_access(root) | build_mlflow_access(root))
        os.environ["MLFLOW_TRACKING_URI"] = mlflow

        def start(name: str, child: Child, is_well: Callable[[], bool]) -> None:
            running[name] = child
            stack.callback(child.end)
            wait_until_healthy(name, child, is_well)
            print(f"{name} is up", file=sys.stderr, flush=True)

        with suppress(KeyboardInterrupt):  # in the order in which they need each other
            server = start_prefect_server(root, prefect_port)
            start("Prefect server", server, lambda: is_healthy(f"{prefect}/api/health"))
            server = start_mlflow_server(root, mlflow_port)
            start("MLflow server", server, lambda: is_healthy(f"{mlflow}/health"))
            start("deployments", start_deployments(store), (root / READY_FILE).exists)
            print(f"Prefect UI  {prefect}   start runs: Deployments → domain-adaptation → Run")
            print(f"MLflow UI   {mlflow}/#/experiments")
            password = root / PASSWORD_FILE
            print(f"password    {password}   Prefect asks for the whole line", flush=True)
            while all(child.poll() is None for child in running.values()):
                time.sleep(POLL_SECONDS)
            name, child = next(one for one in running.items() if one[1].poll() is not None)
            cause = f"{name} ended: {child.find_cause()}"
            raise JobFailed(f"{cause} (log: {child.log}); `up` ends with it")
        print("ending", file=sys.stderr, flush=True)


def start_deployments(store: Store) -> Child:
    """Start the process that serves the deployments."""
    (store.root / READY_FILE).unlink(missing_ok=True)
    command = [sys.executable, "-m", "amazon_electra.flows.ui.deployments", store.address]
    environment = {
        "PREFECT_RUNNER_POLL_FREQUENCY": "3",
        "PREFECT_RUNNER_PROCESS_LIMIT": os.environ.get("PREFECT_RUNNER_PROCESS_LIMIT", "16"),
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
    }
    return Child(command, store.root / "logs" / "deployments.log", environment)


def check_ports(prefect: int, mlflow: int) -> None:
    """Raise UserError where another server has a port, and would answer for ours."""
    require(prefect != mlflow, f"port {prefect}: two servers cannot share it")
    for port in (prefect, mlflow):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError) as error:
                raise UserError(f"port {port}: {error}; choose another port") from None
