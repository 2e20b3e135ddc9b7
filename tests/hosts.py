"""Hosts for tests, each with a home, a working folder and a part of the store of its own. What they
have in common is deploy/compose.yaml's: the servers, on PostgreSQL, and its workers' settings. The
store is a bucket.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from amazon_electra.flows.servers.access import is_healthy
from tests.compose import ROOT, Compose
from tests.patience import eventually
from tests.postgresql import serve_postgresql
from tests.s3_server import BUCKET, S3Server, serve_s3
from tests.served import Servers, pointed_at


class Shared:
    """What all hosts have in common: the services of deploy/compose.yaml, and a bucket."""

    def __init__(self, folder: Path, s3: S3Server, database_port: int):
        self.folder, self.s3, self.store = folder, s3, f"s3://{BUCKET}/runs"
        dotenv = {
            **s3.environment(),
            "AMAZON_ELECTRA_STORE": self.store,
            "OMP_NUM_THREADS": "1",
        }
        self.compose = Compose(folder, database_port, dotenv)
        self.servers = Host(self, "servers")

    @property
    def served(self) -> Servers:
        return Servers(self.folder / "servers", self.compose.prefect, self.compose.mlflow)

    def start_server(self, service: str, health: str) -> None:
        """Start a server; return once it answers."""
        started = self.servers.start(service)
        eventually(lambda: is_healthy(health) or started.poll() is not None)
        assert started.poll() is None, self.servers.read_logs()


class Host:
    """A machine with workers, known by its home."""

    def __init__(self, shared: Shared, name: str):
        self.shared, self.home = shared, shared.folder / name
        (self.home / "tmp").mkdir(parents=True)

    @property
    def environment(self) -> dict[str, str]:
        return self.shared.compose.build_environment("worker-cpu", self.home)

    def start(self, service: str) -> "subprocess.Popen[bytes]":
        return self.shared.compose.start(service, self.home)

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
        logs = (self.home / ".local/state/amazon-electra").glob("*/*/*/log.txt")
        return {log.parts[-3] for log in logs}

    def read_logs(self) -> str:
        """The end of what the services said, for whom a test fails."""
        return "\n".join(log.read_text()[-3000:] for log in self.home.glob("*.txt"))


@contextmanager
def serve_shared(folder: Path) -> Iterator[Shared]:
    """The servers of deploy/compose.yaml, told of pools and deployments, and an S3 server. This
    process is an operator's: its clients reach them.
    """
    with ExitStack() as ends:
        s3 = ends.enter_context(serve_s3(folder / "s3"))
        psql, port = ends.enter_context(serve_postgresql())
        shared = Shared(folder, s3, port)
        for words in ("create role electra superuser login", "create database prefect"):
            subprocess.run([*psql, "-c", words], check=True)
        prepare = (ROOT / "deploy" / "databases.sql").read_bytes()
        subprocess.run([*psql, "-d", "prefect"], input=prepare, check=True)
        ends.callback(shared.servers.lose)
        shared.start_server("prefect", f"{shared.compose.prefect}/api/health")
        shared.start_server("mlflow", f"{shared.compose.mlflow}/health")
        assert shared.servers.start("deployments").wait() == 0, shared.servers.read_logs()
        there = Host(shared, "operator").environment
        ends.enter_context(pointed_at(shared.served, there))
        os.environ.update(there)
        yield shared


@contextmanager
def serve_host(shared: Shared, name: str, *services: str) -> Iterator[Host]:
    """A host with these services, lost when the block ends."""
    host = Host(shared, name)
    try:
        for service in services:
            host.start(service)
        yield host
    finally:
        host.lose()


def crash(served: Servers, run: str) -> None:
    """Mark a run whose host is lost, as the automation does after minutes."""
    from prefect.states import Crashed

    with served.client() as client:
        client.set_flow_run_state(run, Crashed(message="no sign of life"), force=True)
