"""`up`, `status` and `down` around toy processes; the real servers are in tests/faults."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import gethostname

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.cli import main
from amazon_electra.flows.runner.processes import Child
from amazon_electra.flows.servers import health, prefect_server, store_lock, up
from tests.patience import PATIENCE_SECONDS

HOLDS = (
    "import signal, sys, time; from pathlib import Path\n"
    "from amazon_electra.flows.servers.store_lock import hold_store\n"
    "if sys.argv[2] == 'stubborn': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "with hold_store(Path(sys.argv[1])): print('held', flush=True); time.sleep(1000)\n"
)


@pytest.fixture
def stranger():
    """A process that has nothing to do with the store."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


@contextmanager
def holder(store, how):
    """A process that holds the store as an `up` does that has not said yet that all is well."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(store), how], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_a_killed_up_left_is_no_state_and_down_leaves_its_number_alone(
    tmp_path, stranger, capsys
):
    with holder(tmp_path, "") as killed:
        assert store_lock.is_up(tmp_path)
        assert store_lock.find_owner(tmp_path).pid == killed.pid
    left = {"prefect": "http://127.0.0.1:1", "mlflow": "http://127.0.0.1:2", "pid": stranger.pid}
    (tmp_path / "servers.json").write_text(json.dumps(left))
    (tmp_path / "up.lock").write_text(json.dumps({"pid": stranger.pid, "host": gethostname()}))
    assert store_lock.find_owner(tmp_path) is None
    assert store_lock.read_server_state(tmp_path) == {}
    assert prefect_server.find_running_servers(tmp_path) == {}
    assert up.print_status(tmp_path) is False
    up.stop_servers(tmp_path)
    assert capsys.readouterr().out.count("is down") == 2
    with holder(tmp_path, ""):
        assert not (tmp_path / "servers.json").exists(), "the next one takes it away at once"
    assert stranger.poll() is None


def test_down_ends_an_up_that_is_starting(tmp_path, capsys):
    with holder(tmp_path, "") as starting:
        up.print_status(tmp_path)
        up.stop_servers(tmp_path)
        assert starting.wait() == -signal.SIGTERM
    told = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{tmp_path} ") for line in told] == ["is starting", "is down"]


def test_down_gives_up_on_a_process_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(up, "DOWN_SECONDS", 0.2)
    with (
        holder(tmp_path, "stubborn") as stubborn,
        pytest.raises(health.ServerFailed, match=str(stubborn.pid)),
    ):
        up.stop_servers(tmp_path)


class Well(BaseHTTPRequestHandler):
    """Says that it is well, after a while."""

    def do_GET(self):
        time.sleep(1)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


def test_a_server_that_is_slow_to_answer_is_well(tmp_path, capsys):
    server = HTTPServer(("127.0.0.1", 0), Well)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    state = {"prefect": address, "mlflow": address, "started": 0, "pid": 1}
    with store_lock.hold_store(tmp_path):
        (tmp_path / "servers.json").write_text(json.dumps(state))
        assert up.print_status(tmp_path) is True
        server.shutdown()
        server.server_close()
        assert up.print_status(tmp_path) is False
    assert capsys.readouterr().out.count("gives no answer") == 2


def test_up_ends_with_an_error_when_one_of_its_processes_does(tmp_path, monkeypatch):
    commands = {
        "start_prefect_server": "sleep 1000",
        "start_mlflow_server": "sleep 1; echo full >&2; exit 3",
        "start_deployments": "sleep 1000",
    }
    children = {}

    def start(name, store, port):
        children[name] = Child(["sh", "-c", commands[name]], tmp_path / "log")
        return children[name]

    for name in commands:
        monkeypatch.setattr(up, name, partial(start, name))
    monkeypatch.setattr(up, "is_healthy", lambda url: True)
    monkeypatch.setattr(up, "READY_FILE", ".")
    monkeypatch.setattr(health, "interrupt_on_signals", lambda *signals: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    ports = health.find_free_port(), health.find_free_port()
    with pytest.raises(health.ServerFailed, match=r"MLflow.*full.*log"):
        up.run_servers(tmp_path, *ports)
    assert children["start_prefect_server"].has_ended(), "nothing is left running"
    assert not store_lock.is_up(tmp_path)


@pytest.mark.parametrize(
    ("ports", "option"),
    [((99999, 5000), "--prefect-port 99999"), ((4200, 4200), "--mlflow-port 4200")],
)
def test_a_port_that_cannot_be_is_a_mistake(ports, option):
    with pytest.raises(UserError, match=option):
        up.check_ports(*ports)


@pytest.mark.parametrize("words", [["up", "--detach"], ["status"]])
def test_a_store_that_is_a_file_is_a_mistake(tmp_path, capsys, words):
    file = tmp_path / "file"
    file.write_text("")
    for store in (file, file / "store"):
        assert main.attempt(main.build_parser().parse_args([*words, "--store", str(store)])) == 2
        told = f"error: store: {store}: {file} is a file; give the folder of the results\n"
        assert capsys.readouterr().err == told


def test_a_detached_up_that_ends_is_told_as_in_the_terminal_and_is_not_taken_for_another(
    tmp_path, capsys, monkeypatch
):
    executed = tmp_path / "executed"
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "__init__.py").write_text(f"open({str(executed)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        left = {"prefect": "http://127.0.0.1:1", "mlflow": "http://127.0.0.1:2", "pid": os.getpid()}
        (tmp_path / "servers.json").write_text(json.dumps(left))
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "up.log").write_text("of an earlier one\n")
        words = ["up", "--detach", "--no-password", "--store", str(tmp_path)]
        words += ["--prefect-port", port]
        assert main.attempt(main.build_parser().parse_args(words)) == 2
    told = capsys.readouterr()
    warning, began, ended = told.err.splitlines()
    assert warning.startswith("--no-password: ")
    assert began == f"starting (log: {tmp_path / 'logs' / 'up.log'})"
    assert ended == f"error: --prefect-port {port}: Address already in use; choose another port"
    assert told.out == ""
    assert (tmp_path / "logs" / "up.log").read_text().startswith("of an earlier one\n")
    assert not executed.exists(), "code in the folder where the user stands is not run"


STUBBORN = (
    "import signal, time\n"
    "from amazon_electra.flows.servers import health\n"
    "health.LAST_SECONDS = 0.2\n"
    "health.interrupt_on_signals(signal.SIGTERM)\n"
    "words = ['ready', 'told']\n"
    "while True:\n"
    "    try:\n"
    "        if words: print(words.pop(0), flush=True)\n"
    "        time.sleep(1000)\n"
    "    except KeyboardInterrupt: pass\n"
)


def test_a_second_signal_ends_a_process_that_waits_for_something():
    command = [sys.executable, "-c", STUBBORN]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for told in ("ready\n", "told\n"):
            assert process.stdout.readline() == told
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.stdout.close()
