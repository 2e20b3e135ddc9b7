"""Who may read a store, and when `up` asks for a password."""

import os
import pwd
from types import SimpleNamespace

import pytest

from beam_jobs.core.errors import UserError
from flows.cli import main
from flows.servers import access


def write_in(store):
    """The permissions of a store and of what a process writes into it, by kind."""
    access.restrict_store(store)
    (store / "logs").mkdir()
    (store / "logs" / "up.log").write_text("a line")
    paths = [store, *store.rglob("*")]
    return {("folder" if p.is_dir() else "file", oct(p.stat().st_mode & 0o777)) for p in paths}


def test_nobody_else_reads_a_store_unless_a_setting_lets_the_group_in(tmp_path, monkeypatch):
    assert write_in(tmp_path / "parent" / "own") == {("folder", "0o700"), ("file", "0o600")}
    monkeypatch.setenv("AMAZON_ELECTRA_STORE_GROUP", "true")
    assert write_in(tmp_path / "group") == {("folder", "0o770"), ("file", "0o660")}
    monkeypatch.setenv("AMAZON_ELECTRA_STORE_GROUP", "staff")
    with pytest.raises(UserError, match="STORE_GROUP is 'staff': write true or false"):
        access.restrict_store(tmp_path / "other")


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


@pytest.mark.parametrize("words", [["up"]])
def test_a_store_that_cannot_be_made_is_told_by_its_setting(capsys, words):
    arguments = main.build_parser().parse_args([*words, "--store", "/proc/foo"])
    assert main.attempt(arguments) == 2
    told = capsys.readouterr().err
    why = "cannot be written: No such file or directory; choose another folder"
    assert told == f"error: --store /proc/foo: {why}\n"
