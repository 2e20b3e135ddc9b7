"""A cockpit for tests: `amazon-electra up` on a store of its own, and what a person does there by
hand.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from flows.servers.health import find_free_port
from flows.servers.settings import build_client_environment

CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PREFECT_", "MLFLOW_"))
}
UP_SECONDS = 400
"""The machine may be loaded: alone, it takes 15."""


@dataclass(frozen=True)
class Cockpit:
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

    def wait(self, run: str, *states: str, seconds: float = 600) -> str:
        """Until the run is in one of these states; that state."""
        return eventually(
            lambda: (now := self.state(run)) in states and now, seconds, lambda: self.told(run)
        )

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
        return "\n".join(
            [
                *(f"{state.timestamp:%H:%M:%S} {state!r}" for state in states),
                *(f"{line.timestamp:%H:%M:%S} {line.message}" for line in logs[-40:]),
            ]
        )

    def jobs(self, words: str) -> list[psutil.Process]:
        """Processes of this store whose command line has these words, guards left out."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            line = " ".join(process.info["cmdline"] or [])
            if words in line and str(self.store) in line and "guard.py" not in line:
                found.append(process)
        return [process for process in found if process.info["status"] != psutil.STATUS_ZOMBIE]

    def electra(
        self, *words: str, seconds: float = UP_SECONDS
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "flows.cli.main", *words, "--store", str(self.store)]
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=CLEAN)


def eventually(
    found: Callable[[], Any], seconds: float, otherwise: Callable[[], Any] = lambda: ""
) -> Any:
    """What is found, once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s; {otherwise()}"
        time.sleep(0.25)
    return value


@contextmanager
def cockpit(store: Path, settings: Mapping[str, str] = {}) -> Iterator[Cockpit]:
    """Up while the block lasts, down after it; this process's Prefect client points at it."""
    served = Cockpit(
        store, f"http://127.0.0.1:{find_free_port()}", f"http://127.0.0.1:{find_free_port()}"
    )
    ports = [
        word
        for name in ("prefect", "mlflow")
        for word in (f"--{name}-port", getattr(served, name).split(":")[2])
    ]
    command = [
        sys.executable,
        "-m",
        "flows.cli.main",
        "up",
        "--detach",
        "--no-password",
        "--store",
        str(store),
        *ports,
    ]
    subprocess.run(command, check=True, timeout=UP_SECONDS, env={**CLEAN, **settings})
    try:
        with pointed_at(served, settings):
            yield served
    finally:
        down = served.electra("down")
    assert down.returncode == 0, down.stderr


@contextmanager
def pointed_at(served: Cockpit, settings: Mapping[str, str]) -> Iterator[None]:
    from prefect.context import refresh_global_settings_context

    before = dict(os.environ)
    os.environ.update(
        {**build_client_environment(served.store, f"{served.prefect}/api"), **settings}
    )
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    refresh_global_settings_context()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        refresh_global_settings_context()
