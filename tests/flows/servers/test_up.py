"""`up`, `status`, `down` about processes that died, hang, or are not theirs; the real servers are
in tests/faults.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import psutil
import pytest

from beam_jobs.job.errors import UserError
from flows.cli import main
from flows.runner.processes import Child
from flows.servers import health, prefect_server, service, store_lock, up
from flows.servers.service import Service
from flows.servers.settings import READY_FILE
from tests.patience import eventually

HOLDS = (
    "import signal, sys, time; from pathlib import Path\n"
    "from flows.servers.store_lock import hold_store\n"
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
        assert store_lock.find_live_owner(tmp_path / "up.lock").pid == killed.pid
    addresses = {"prefect": "http://127.0.0.1:1", "mlflow": "http://127.0.0.1:2"}
    left = {**addresses, **store_lock.identify_this_process(), "pid": stranger.pid, "born": 1.0}
    for name in ("servers.json", "up.lock"):
        (tmp_path / name).write_text(json.dumps(left))
    assert (
        store_lock.read_server_state(tmp_path)
        == prefect_server.find_running_servers(tmp_path)
        == {}
    )
    assert up.print_status(tmp_path) is False
    up.stop_servers(tmp_path)
    assert capsys.readouterr().out.count("is down") == 2
    with holder(tmp_path, ""):
        assert not (tmp_path / "servers.json").exists(), "the next one takes it away at once"
    assert stranger.poll() is None


def test_a_process_of_before_a_reboot_is_not_taken_for_another_of_its_number(tmp_path):
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(store_lock.identify_this_process()))
    assert store_lock.find_live_owner(file).pid == os.getpid()
    file.write_text(json.dumps({**store_lock.identify_this_process(), "boot": "an earlier one"}))
    assert store_lock.find_live_owner(file) is None


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
        pytest.raises(health.ServerFailed, match=rf"process {stubborn.pid} does not end; kill it$"),
    ):
        up.stop_servers(tmp_path)


class Well(BaseHTTPRequestHandler):
    seconds = 0

    def do_GET(self):
        time.sleep(self.seconds)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def address():
    """Of a server that says that it is well, after a while."""
    server = HTTPServer(("127.0.0.1", 0), Well)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_server_that_is_slow_to_answer_is_not_away(address, monkeypatch):
    monkeypatch.setattr(Well, "seconds", 3)
    assert health.is_healthy(address)


def test_status_is_well_only_while_somebody_serves_the_deployments(
    tmp_path, stranger, address, capsys
):
    ready = tmp_path / READY_FILE
    ready.parent.mkdir()
    with store_lock.hold_store(tmp_path):
        (tmp_path / "servers.json").write_text(
            json.dumps(
                {
                    "prefect": address,
                    "mlflow": address,
                    "started": 0,
                    **store_lock.identify_this_process(),
                }
            )
        )
        born = store_lock.read_birth_seconds(psutil.Process(stranger.pid))
        ready.write_text(
            json.dumps({"pid": stranger.pid, "born": born, "boot": store_lock.read_boot_id()})
        )
        assert up.print_status(tmp_path) is True
        assert "deployments served\n" in capsys.readouterr().out
        stranger.kill()
        stranger.wait()
        assert up.print_status(tmp_path) is False
        assert "deployments not served\n" in capsys.readouterr().out


def test_a_process_that_hangs_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(service, "MAX_FAILED_CHECKS", 2)
    answers = [True, True, False, False]
    serving = Service(
        "toy", lambda: Child(["sleep", "1000"], tmp_path / "log"), lambda: answers.pop(0)
    )
    serving.start()
    try:
        first = serving.process
        serving.watch()
        assert serving.process is first
        serving.watch()
        assert not first.has_ended(), "one silence is none"
        serving.watch()
        assert first.has_ended()
        serving.watch()
        assert serving.process is not first
        assert not serving.process.has_ended()
    finally:
        serving.end()


def test_a_log_that_is_long_begins_anew_under_its_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "MAX_LOG_BYTES", 10)
    log, trimmed = tmp_path / "log", tmp_path / "trimmed"
    wait = f"until [ -e {shlex.quote(str(trimmed))} ]; do sleep 0.05; done"
    child = Child(["sh", "-c", f"echo before >&2; {wait}; echo after >&2; exit 3"], log)
    eventually(lambda: "\nbefore\n" in log.read_text())
    service.trim_log(log)
    trimmed.touch()
    eventually(child.has_ended)
    assert "before" in (tmp_path / "log.1").read_text()
    assert log.read_text() == "after\n"
    assert child.find_cause() == "after"


@pytest.mark.parametrize(
    ("ports", "told"),
    [
        ((99999, 5000), "--prefect-port 99999: a port is a number from 1 to 65535"),
        ((4200, -1), "--mlflow-port -1: a port is a number from 1 to 65535"),
        ((4200, 4200), "--mlflow-port 4200: it is the Prefect server's too"),
    ],
)
def test_a_port_that_cannot_be_is_a_mistake(ports, told):
    with pytest.raises(UserError, match=f"^{told}; choose another port$"):
        up.check_ports(*ports)


@pytest.mark.parametrize("words", [["up"], ["up", "--detach"], ["status"], ["down"]])
def test_a_store_that_is_a_file_is_a_mistake(tmp_path, capsys, words):
    file = tmp_path / "file"
    file.write_text("")
    for store in (file, file / "store"):
        assert main.attempt(main.build_parser().parse_args([*words, "--store", str(store)])) == 2
        assert (
            capsys.readouterr().err
            == f"error: store: {store}: {file} is a file; give the folder of the results\n"
        )


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
        (tmp_path / "servers.json").write_text(
            json.dumps(
                {
                    "prefect": "http://127.0.0.1:1",
                    "mlflow": "http://127.0.0.1:2",
                    **store_lock.identify_this_process(),
                }
            )
        )
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "up.log").write_text("of an earlier one\n")
        words = [
            "up",
            "--detach",
            "--no-password",
            "--store",
            str(tmp_path),
            "--prefect-port",
            port,
        ]
        assert main.attempt(main.build_parser().parse_args(words)) == 2
    told = capsys.readouterr()
    assert (
        told.err == f"error: --prefect-port {port}: Address already in use; choose another port\n"
    )
    assert told.out == ""
    assert (tmp_path / "logs" / "up.log").read_text().startswith("of an earlier one\n")
    assert not executed.exists(), "code in the folder where the user stands is not run"
