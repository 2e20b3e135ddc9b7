"""Starts Prefect's and MLflow's own servers on a store. Each listens on 127.0.0.1, has the store's
password, keeps its data in the store and ends with the process that started it, however that ends.
"""

import atexit
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import JobFailed, UserError, require
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT, Child, interrupt_on_signals
from amazon_electra.flows.servers.access import (
    HOST,
    PASSWORD_FILE,
    READY_FILE,
    SETTINGS,
    build_client_environment,
    build_mlflow_access,
    build_prefect_access,
    find_free_port,
    find_running_servers,
    hold_store,
    is_healthy,
    read_password,
)
from amazon_electra.flows.store.store import Store
from amazon_electra.model.locks import exclusive_lock
from amazon_electra.model.tracking.mlflow_client import is_new_database

START_SECONDS = 300.0  # the first start creates the database: 8 s on two idle cores
POLL_SECONDS = 1.0


def start_prefect_server(store: Path, port: int, factory: str = "create_server") -> Child:
    """Start a Prefect server on the store by a function of servers/prefect_app.py."""
    app = f"amazon_electra.flows.servers.prefect_app:{factory}"
    command = ["uvicorn", "--factory", app, "--log-level", "warning"]
    return start_server("prefect", command, store, port)


def start_mlflow_server(store: Path, port: int) -> Child:
    """Start an MLflow server on the store."""
    folder, database = store / "mlflow", resolve_mlflow_database(store)
    folder.mkdir(parents=True, exist_ok=True)
    if is_new_database(database):  # a server that is interrupted while it makes one leaves half
        maker = [sys.executable, "-m", "amazon_electra.model.tracking.mlflow_client", database]
        subprocess.run(maker, check=True, env=os.environ | PYTHON_ENVIRONMENT)
    read_password(store)
    access, users = folder / "access.ini", folder / "access.db"
    if users.exists() and users.stat().st_mtime < (store / PASSWORD_FILE).stat().st_mtime:
        users.unlink()  # it has the password of an earlier file
    access.write_text(SETTINGS["access.ini"].format(users=users), encoding="utf-8")
    command = ["mlflow", "server", "--app-name", "basic-auth", "--workers", "1"]
    known = {"database": database, "artifacts": locate_artifacts(store), "access": access}
    return start_server("mlflow", command, store, port, **known)


def start_server(
    name: str, command: Sequence[str], store: Path, port: int, **known: object
) -> Child:
    """Start a server with its part of settings.yaml; the caller waits until it answers."""
    (store / name).mkdir(parents=True, exist_ok=True)
    user, _, password = read_password(store).partition(":")
    known |= {"user": user, "password": password, "secret": secrets.token_hex(32)}
    known["url"] = url = f"http://{HOST}:{port}"
    own = {name: text.format(**known) for name, text in SETTINGS[name].items()}
    words = [sys.executable, "-m", *command, "--host", HOST, "--port", str(port)]
    settings = build_client_environment(store, f"{url}/api") | own
    return Child(words, store / "logs" / f"{name}.log", settings)


def start_deployments(store: Store) -> Child:
    """Start the process that serves the deployments."""
    (store.root / READY_FILE).unlink(missing_ok=True)
    command = [sys.executable, "-m", "amazon_electra.flows.ui.deployments", store.address]
    shipped = SETTINGS["deployments"].items()
    environment = {name: os.environ.get(name, value) for name, value in shipped}
    return Child(command, store.root / "logs" / "deployments.log", environment)


def wait_until_healthy(name: str, process: Child, check: Callable[[], bool]) -> None:
    """Wait until `check` is true; raise JobFailed if the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not check():
        is_over = process.poll() is not None
        if is_over or time.monotonic() > deadline:
            cause = process.find_cause() if is_over else "no answer"
            raise JobFailed(f"{name} did not start: {cause} (log: {process.log})")
        time.sleep(POLL_SECONDS)


def connect_prefect(store: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Set this process's environment up for a Prefect server: that of PREFECT_API_URL, else that of
    `up`, else one for this process alone on the same database. Call `meanwhile` while it starts.
    """
    url = os.environ.get("PREFECT_API_URL")
    if not url and (servers := find_running_servers(store)):
        url = f"{servers['prefect']}/api"
    if url:
        os.environ.update(build_client_environment(store, url))
        meanwhile()
        return
    port = find_free_port()
    url = f"http://{HOST}:{port}/api"
    os.environ.update(build_client_environment(store, url) | build_prefect_access(store))
    with exclusive_lock(store / "prefect" / "start.lock"):  # the first one makes the database
        server = start_prefect_server(store, port, "create_run_server")
        atexit.register(server.end)  # after Prefect has sent it what still waits
        meanwhile()
        wait_until_healthy("the Prefect server", server, lambda: is_healthy(f"{url}/health"))


def resolve_mlflow_uri(store: Path) -> str:
    """Return MLFLOW_TRACKING_URI, else the server that is up for this store, else its database."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or find_running_servers(store).get("mlflow")
    return uri or resolve_mlflow_database(store)


def resolve_mlflow_database(store: Path) -> str:
    """Return the database that MLFLOW_BACKEND_STORE_URI names, else a file in the store."""
    return os.environ.get("MLFLOW_BACKEND_STORE_URI") or f"sqlite:///{store}/mlflow/mlflow.db"


def locate_artifacts(store: Path) -> str:
    """Return the address of the folder in which the store's MLflow keeps its artifacts."""
    return f"file://{store}/mlflow/artifacts"


def run_servers(store: Store, prefect_port: int, mlflow_port: int) -> None:
    """Start both servers and the deployments; return when interrupted, JobFailed when one ends."""
    interrupt_on_signals(signal.SIGTERM, signal.SIGHUP)
    root, running = store.root, dict[str, Child]()
    prefect, mlflow = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    with hold_store(root, {"prefect": prefect, "mlflow": mlflow}), ExitStack() as stack:
        check_ports(prefect_port, mlflow_port)
        os.environ.update(build_client_environment(root, f"{prefect}/api"))
        os.environ.update(build_prefect_access(root) | build_mlflow_access(root))
        os.environ["MLFLOW_TRACKING_URI"] = mlflow

        def add(name: str, child: Child, is_well: Callable[[], bool]) -> None:
            running[name] = child
            stack.callback(child.end)
            wait_until_healthy(name, child, is_well)
            print(f"{name} is up", file=sys.stderr, flush=True)

        with suppress(KeyboardInterrupt):  # in the order in which they need each other
            server = start_prefect_server(root, prefect_port)
            add("Prefect server", server, lambda: is_healthy(f"{prefect}/api/health"))
            server = start_mlflow_server(root, mlflow_port)
            add("MLflow server", server, lambda: is_healthy(f"{mlflow}/health"))
            add("deployments", start_deployments(store), (root / READY_FILE).exists)
            print(f"Prefect UI  {prefect}   start runs: Deployments → domain-adaptation → Run")
            print(f"MLflow UI   {mlflow}/#/experiments")
            password = root / PASSWORD_FILE
            print(f"password    {password}   Prefect asks for the whole line", flush=True)
            while all(child.poll() is None for child in running.values()):
                time.sleep(POLL_SECONDS)
            name, child = next(one for one in running.items() if one[1].poll() is not None)
            raise JobFailed(f"{name} ended: {child.find_cause()} (log: {child.log})")
        print("ending", file=sys.stderr, flush=True)


def check_ports(*ports: int) -> None:
    """Raise UserError where another server has a port, and would answer for ours."""
    require(len({*ports}) == len(ports), f"port {ports[0]}: two servers cannot share it")
    for port in ports:
        try:
            socket.create_server((HOST, port)).close()
        except (OSError, OverflowError) as error:
            raise UserError(f"port {port}: {error}; choose another port") from None
