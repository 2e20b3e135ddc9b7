"""Who may read a store, and when `up` asks for a password."""

import os
import pwd
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from beam_jobs.job.errors import UserError
from flows.cli import main
from flows.servers import access


def modes(store):
    """The permissions of a store and of all it holds, by kind."""
    paths = [store, *store.rglob("*")]
    return {("folder" if p.is_dir() else "file", oct(p.stat().st_mode & 0o777)) for p in paths}


def run_up(store, **settings):
    """`amazon-electra up` that ends at its port, when it has taken the store."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["up", "--detach", "--no-password", "--store", str(store)]
        words += ["--prefect-port", str(taken.getsockname()[1])]
        command = [sys.executable, "-m", "flows.cli.main", *words]
        environment = {**os.environ, "AMAZON_ELECTRA_STORE_GROUP": "", **settings}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_nobody_else_reads_a_store(tmp_path):
    store = tmp_path / "parent" / "store"
    assert "Address already in use" in run_up(store)[1]
    assert modes(store) == {("folder", "0o700"), ("file", "0o600")}


def test_a_setting_lets_the_group_in(tmp_path):
    store = tmp_path / "store"
    run_up(store, AMAZON_ELECTRA_STORE_GROUP="true")
    assert modes(store) == {("folder", "0o770"), ("file", "0o660")}
    assert run_up(store, AMAZON_ELECTRA_STORE_GROUP="staff") == (
        2,
        "error: AMAZON_ELECTRA_STORE_GROUP is 'staff': write true or false\n",
    )


def test_folders_of_an_earlier_version_are_closed(tmp_path):
    for name in ("prefect", "logs"):
        (tmp_path / name).mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    run_up(tmp_path)
    assert {oct((tmp_path / n).stat().st_mode & 0o777) for n in ("prefect", "logs")} == {"0o700"}
    assert oct(tmp_path.stat().st_mode & 0o777) == "0o755", "the folder may hold other things too"


@pytest.fixture
def users(monkeypatch):
    """The users of the machine; this process is one of them."""

    def user(name, number, shell="/bin/bash"):
        return SimpleNamespace(pw_name=name, pw_uid=number, pw_shell=shell)

    others = [
        user("root", 0),
        user("me", os.getuid()),
        user("daemon", 1),
        user("nobody", 65_534, "/usr/sbin/nologin"),
        user("service", 1005, "/bin/false"),
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: others)
    for name in access.PASSWORDS:
        monkeypatch.delenv(name, raising=False)
    return lambda name: others.append(user(name, 1000 if os.getuid() != 1000 else 1001))


def test_up_asks_for_a_password_where_others_could_start_runs(users, monkeypatch):
    access.check_passwords(False)
    users("ann")
    with pytest.raises(UserError, match=r"\(ann\) could start runs.*PREFECT_.* and MLFLOW_.*"):
        access.check_passwords(False)
    access.check_passwords(True)
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "me:word")
    with pytest.raises(UserError, match="set MLFLOW_TRACKING_USERNAME "):
        access.check_passwords(False)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    access.check_passwords(False)


@pytest.mark.parametrize("words", [["run", "--dump", "sample:100"], ["up"], ["study", "losses"]])
def test_a_store_that_cannot_be_made_is_told_by_its_setting(capsys, words):
    arguments = main.build_parser().parse_args([*words, "--store", "/proc/foo"])
    assert main.attempt(arguments) == 2
    told = capsys.readouterr().err
    why = "cannot be written: No such file or directory; choose another folder"
    assert told == f"error: --store /proc/foo: {why}\n"
