"""Hosts for tests, each with a home, a working folder and a part of the store of its own; they have
a Prefect server, an MLflow server and a store in common, and nothing else.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from flows.servers.health import find_free_port, is_healthy
from flows.servers.mlflow_server import start_mlflow_server
from flows.servers.prefect_server import start_prefect_server
from flows.servers.settings import CLIENT, NO_TELEMETRY
from tests.patience import eventually
from tests.s3_server import BUCKET, S3Server, serve_s3
from tests.served import Servers, pointed_at

ROOT = Path(__file__).parents[1]
OUTSIDE = ("PREFECT_", "MLFLOW_", "AWS_", "AMAZON_ELECTRA_")


class Shared:
    """What all hosts have in common; `environment` is how they reach it."""

    def __init__(self, folder: Path, s3: S3Server):
        self.folder, self.s3 = folder, s3
        self.store = f"s3://{BUCKET}/runs"
        self.prefect = f"http://127.0.0.1:{find_free_port()}"
        self.mlflow = f"http://127.0.0.1:{find_free_port()}"

    @property
    def served(self) -> Servers:
        return Servers(self.folder / "servers", self.prefect, self.mlflow)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **NO_TELEMETRY,
            **CLIENT,
            **self.s3.environment(),
            "PREFECT_API_URL": f"{self.prefect}/api",
            "MLFLOW_TRACKING_URI": self.mlflow,
            "AMAZON_ELECTRA_STORE": self.store,
            "AMAZON_ELECTRA_LEASE_SECONDS": "20",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "OMP_NUM_THREADS": "1",
        }


class Host:
    """A machine with a worker of one pool."""

    def __init__(self, shared: Shared, name: str):
        self.shared, self.home = shared, shared.folder / name
        self.home.mkdir()
        self.workers: list[subprocess.Popen] = []

    @property
    def environment(self) -> dict[str, str]:
        ours = {n: v for n, v in os.environ.items() if not n.startswith(OUTSIDE)}
        own = {"HOME": str(self.home), "PREFECT_HOME": str(self.home / ".prefect")}
        return {**ours, **self.shared.environment, **own}

    def start_worker(self, pool: str, *options: str) -> None:
        words = ["-m", "prefect", "worker", "start", "--type", "process", "--pool", pool, *options]
        with open(self.home / f"{pool}.txt", "ab") as log:
            self.workers.append(
                subprocess.Popen(
                    [sys.executable, *words],
                    env=self.environment,
                    cwd=self.home,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, env=self.environment, cwd=self.home, capture_output=True, text=True
        )

    def list_processes(self) -> list[psutil.Process]:
        """Every process of this host, known by its home."""
        found = []
        for process in psutil.process_iter(["environ", "status"]):
            environ = process.info["environ"] or {}
            if environ.get("HOME") == str(self.home) and process.info["status"] != "zombie":
                found.append(process)
        return found

    def lose(self) -> None:
        """End everything on this host at once, as a power cut does."""
        while running := self.list_processes():
            for process in running:
                if process.is_running():
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(running, timeout=5)

    def list_made(self) -> set[str]:
        """The kinds of the stages whose jobs ran here: their logs stay on the host."""
        part = self.home / ".amazon-electra"
        return {log.parts[-3] for log in part.glob("*/*/*/log.txt")}


@contextmanager
def serve_shared(folder: Path) -> Iterator[Shared]:
    """An S3 server, a Prefect server that knows our pools and deployments, an MLflow server."""
    with ExitStack() as ends:
        shared = Shared(folder, ends.enter_context(serve_s3(folder / "s3")))
        servers = folder / "servers"
        prefect = start_prefect_server(servers, int(shared.prefect.rsplit(":", 1)[1]))
        ends.callback(prefect.end)
        mlflow = start_mlflow_server(servers, int(shared.mlflow.rsplit(":", 1)[1]))
        ends.callback(mlflow.end)
        eventually(lambda: is_healthy(f"{shared.prefect}/api/health"))
        eventually(lambda: is_healthy(f"{shared.mlflow}/health"))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        told = subprocess.run(
            ["sh", str(ROOT / "deploy" / "deployments.sh")],
            env={**Host(shared, "operator").environment, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert told.returncode == 0, told.stdout + told.stderr
        yield shared


@contextmanager
def serve_host(shared: Shared, name: str, *pools: str) -> Iterator[Host]:
    """A host with a worker of each pool, lost when the block ends."""
    host = Host(shared, name)
    try:
        for pool in pools:
            host.start_worker(pool)
        yield host
    finally:
        host.lose()


@contextmanager
def pointed_at_shared(shared: Shared) -> Iterator[None]:
    """This process is an operator's: its clients reach what the hosts share."""
    with pointed_at(shared.served, shared.environment):
        os.environ.update(shared.environment)
        yield
