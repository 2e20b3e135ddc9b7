"""Servers for tests: `amazon-electra up` on a store of its own, and what a person does there by
hand.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from amazon_electra.flows.servers.access import (
    build_client_environment,
    build_mlflow_access,
    build_prefect_access,
)
from tests.patience import eventually

CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PREFECT_", "MLFLOW_"))
}
ELECTRA = [sys.executable, "-m", "amazon_electra.flows.cli.main"]
RUN_SECONDS = 1000.0
"""For a whole run on a loaded machine; alone, one takes a minute."""


def electra(
    *words: object, environment: Mapping[str, str] = CLEAN
) -> "subprocess.CompletedProcess[str]":
    """Run a command of ours as its users do."""
    command = [*ELECTRA, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def find_free_ports(n: int) -> list[int]:
    """Ports of this machine that nobody listens on, all different."""
    with ExitStack() as opened:
        probes = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [int(probe.getsockname()[1]) for probe in probes]


@dataclass(frozen=True)
class Servers:
    store: Path
    prefect: str
    mlflow: str

    def client(self) -> Any:
        """Of Prefect, inside `pointed_at`."""
        from prefect.client.orchestration import get_client

        return get_client(sync_client=True)

    def start(self, deployment: str, **parameters: Any) -> str:
        """The id of the flow run."""
        with self.client() as client:
            found = client.read_deployment_by_name(f"{deployment}/{deployment}")
            return str(client.create_flow_run_from_deployment(found.id, parameters=parameters).id)

    def run(self, run: str) -> Any:
        with self.client() as client:
            return client.read_flow_run(run)

    def state(self, run: str) -> str:
        found = self.run(run).state
        return found.name if found else ""

    def wait(self, run: str, state: str) -> None:
        """Until the run is in this state; one that ends otherwise is told at once."""

        def is_over() -> bool:
            found = self.run(run).state
            return bool(found) and (found.name == state or found.is_final())

        eventually(is_over, lambda: self.told(run), RUN_SECONDS)
        assert self.state(run) == state, self.told(run)

    def cancel(self, run: str) -> None:
        """As the button of the UI does."""
        from prefect.states import Cancelling

        with self.client() as client:
            client.set_flow_run_state(run, Cancelling())

    def told(self, run: str) -> str:
        """What became of the run and what it said last, for whom a test fails."""
        from prefect.client.schemas.filters import LogFilter

        with self.client() as client:
            states = sorted(
                client.read_flow_run_states(UUID(run)), key=lambda state: state.timestamp
            )
            logs = client.read_logs(LogFilter(flow_run_id={"any_": [run]}), limit=200)
        told = [f"{state.timestamp:%H:%M:%S} {state!r}" for state in states]
        told += [f"{line.timestamp:%H:%M:%S} {line.message}" for line in logs[-40:]]
        return "\n".join(told)

    def jobs(self, words: str) -> list[psutil.Process]:
        """Processes of this store whose command line has these words.

        A child that has not begun its own program yet has its parent's command line.
        """
        found = {}
        for process in psutil.process_iter(["cmdline", "status", "ppid"]):
            line = " ".join(process.info["cmdline"] or [])
            if words in line and str(self.store) in line:
                found[process.pid] = process
        return [
            process
            for process in found.values()
            if process.info["status"] != psutil.STATUS_ZOMBIE and process.info["ppid"] not in found
        ]

    def electra(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return electra(*words, "--store", self.store)


@contextmanager
def serve(store: Path, settings: Mapping[str, str] = {}) -> Iterator[Servers]:
    """`up` while the block lasts; this process's Prefect client points at it."""
    prefect, mlflow = find_free_ports(2)
    served = Servers(store, f"http://127.0.0.1:{prefect}", f"http://127.0.0.1:{mlflow}")
    words = [*ELECTRA, "up", "--store", store, "--prefect-port", prefect, "--mlflow-port", mlflow]
    with subprocess.Popen(
        [*map(str, words)],
        env={**CLEAN, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        try:
            lines = iter(up.stdout.readline, "")
            assert any(line.startswith("password ") for line in lines), up.stderr.read()
            with pointed_at(served, settings):
                yield served
        finally:
            up.terminate()
            up.communicate()
    assert up.returncode == 0


@contextmanager
def pointed_at(served: Servers, settings: Mapping[str, str]) -> Iterator[None]:
    from prefect.context import refresh_global_settings_context

    before = dict(os.environ)
    os.environ.update(build_client_environment(served.store, f"{served.prefect}/api"))
    os.environ.update(build_prefect_access(served.store))
    os.environ.update(build_mlflow_access(served.store))
    os.environ.update(settings)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    refresh_global_settings_context()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        refresh_global_settings_context()
