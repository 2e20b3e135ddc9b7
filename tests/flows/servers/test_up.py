"""`up` around toy processes; the real servers are in tests/faults."""

import os
import socket
import subprocess
import sys
from functools import partial

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed
from amazon_electra.flows.cli import main
from amazon_electra.flows.runner.processes import Child
from amazon_electra.flows.servers import access, stock
from amazon_electra.flows.store.store import Store
from tests.refusals import refuses
from tests.served import find_free_ports

ADDRESSES = {"prefect": "http://127.0.0.1:1", "mlflow": "http://127.0.0.1:2"}
HOLDS = (
    "import json, sys, time; from pathlib import Path\n"
    "from amazon_electra.flows.servers.access import hold_store\n"
    "with hold_store(Path(sys.argv[1]), json.loads(sys.argv[2])):\n"
    "    print('held', flush=True); time.sleep(1000)\n"
)


def test_a_second_up_names_the_first(tmp_path):
    words = [sys.executable, "-c", HOLDS, str(tmp_path), str(ADDRESSES).replace("'", '"')]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout.readline() == "held\n"
            with refuses(ADDRESSES["prefect"], str(first.pid)):
                stock.run_servers(Store(tmp_path), 4200, 5000)
            assert access.find_running_servers(tmp_path) == {}, "it does not answer"
        finally:
            first.kill()
    with access.hold_store(tmp_path, ADDRESSES):
        pass


def test_up_ends_when_one_of_its_processes_does(tmp_path, monkeypatch):
    commands = {
        "start_prefect_server": "sleep 1000",
        "start_mlflow_server": "sleep 1; echo full >&2; exit 3",
        "start_deployments": "sleep 1000",
    }
    children = {}

    def start(name, store, port=0):
        children[name] = Child(["sh", "-c", commands[name]], tmp_path / "log")
        return children[name]

    for name in commands:
        monkeypatch.setattr(stock, name, partial(start, name))
    monkeypatch.setattr(stock, "is_healthy", lambda url: True)
    monkeypatch.setattr(stock, "READY_FILE", ".")
    monkeypatch.setattr(stock, "interrupt_on_signals", lambda *signals: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    ports = find_free_ports(2)
    with refuses(*("MLflow", "full", f"{tmp_path}/log"), kind=JobFailed):
        stock.run_servers(Store(tmp_path), *ports)
    assert children["start_prefect_server"].returncode is not None, "nothing is left running"


def test_a_taken_or_impossible_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        [free] = find_free_ports(1)
        for ports in ((taken.getsockname()[1], free), (99999, free), (free, free)):
            with refuses(str(ports[0])):
                stock.check_ports(*ports)


def test_a_store_that_cannot_be_made(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    for store in (file, file / "store", "/proc/foo"):
        assert main.run_words(["up", "--store", str(store)]) == 2
        assert str(store) in capsys.readouterr().err


def test_nobody_else_reads_a_store(tmp_path):
    store = tmp_path / "parent" / "own"
    Store(store).check_access()
    (store / "logs").mkdir()
    (store / "logs" / "up.log").write_text("a line")
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in store.rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}


@pytest.mark.parametrize("address", ["https://api.prefect.cloud/api/accounts/A", "http://h:1/api"])
def test_a_named_prefect_server_is_taken(tmp_path, monkeypatch, address):
    monkeypatch.setattr(os, "environ", {**os.environ, "PREFECT_API_URL": address})
    stock.connect_prefect(tmp_path)
    assert os.environ["PREFECT_API_URL"] == address
    assert not list(tmp_path.iterdir()), "no server is started"
