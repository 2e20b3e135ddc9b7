"""Who may read a store, and when `up` asks for a password."""

import json
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
def machine(tmp_path, monkeypatch):
    """A machine whose users a test adds; this process is one of them. Returns its folder."""
    users, shadow, nsswitch = [], tmp_path / "shadow", tmp_path / "nsswitch.conf"
    for name, path in (("SHADOW", shadow), ("NSSWITCH", nsswitch), ("SSSD", tmp_path / "sssd")):
        monkeypatch.setattr(access, name, path)
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    for name in ("PREFECT", "MLFLOW"):
        for variable in [v for v in os.environ if v.startswith(name)]:
            monkeypatch.delenv(variable)
    nsswitch.write_text("passwd: files systemd [NOTFOUND=return] sss  # and no more\n")

    def add(name, number, shell="/bin/bash", word="!", home="/nonexistent"):
        users.append(SimpleNamespace(pw_name=name, pw_uid=number, pw_shell=shell, pw_dir=str(home)))
        with open(shadow, "a") as lines:
            lines.write(f"{name}:{word}:19000:0:99999:7:::\n")

    add("root", 0, word="$y$")
    add("me", os.getuid(), word="$y$")
    add("cloudsdk", 1000 if os.getuid() != 1000 else 1001)
    add("nobody", 65_534, "/usr/sbin/nologin", word="$y$")
    add("postgres", 70, word="*")
    return SimpleNamespace(add=add, folder=tmp_path, nsswitch=nsswitch, shadow=shadow)


def test_who_can_log_in_has_a_shell_and_a_password_or_a_key(machine, monkeypatch):
    assert access.list_other_people() == []
    machine.add("ann", 4000, word="$y$j9T$")
    machine.add("bob", 500, shell="", home=machine.folder)
    assert access.list_other_people() == ["ann"]
    (machine.folder / ".ssh").mkdir()
    (machine.folder / ".ssh" / "authorized_keys").touch()
    assert access.list_other_people() == ["ann", "bob"]
    machine.shadow.unlink()
    assert access.list_other_people() == ["cloudsdk", "ann"], "nobody but root may read it"


def test_a_directory_service_is_a_shared_machine(machine):
    assert access.list_other_people() == []
    (machine.folder / "sssd").touch()
    assert access.list_other_people() == ["the users of sss"]
    machine.nsswitch.write_text("group: nis\npasswd:\tfiles ldap\n")
    assert access.list_other_people() == ["the users of ldap"]


def test_up_makes_a_password_where_others_can_log_in(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    path = tmp_path / access.PASSWORD_FILE
    access.prepare_passwords(tmp_path, False)
    machine.add("ann", 4000, word="$y$")
    access.prepare_passwords(tmp_path, True)
    assert not path.exists()
    assert not capsys.readouterr().out
    access.prepare_passwords(tmp_path, False)
    assert path.stat().st_mode & 0o777 == 0o600
    known = json.loads(path.read_text())
    assert set(access.PASSWORDS) < set(known)
    assert known.items() <= os.environ.items()
    word = known["MLFLOW_TRACKING_PASSWORD"]
    assert known["PREFECT_API_AUTH_STRING"] == f"electra:{word}"
    assert "ann can log in to this machine too" in (told := capsys.readouterr().out)
    assert word in told
    access.prepare_passwords(tmp_path, False)
    assert not capsys.readouterr().out, "it is told once"


def test_a_server_elsewhere_is_not_told_the_password(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    known = {"PREFECT_API_AUTH_STRING": "electra:x", "MLFLOW_TRACKING_PASSWORD": "x"}
    (tmp_path / access.PASSWORD_FILE).write_text(json.dumps(known))
    os.environ["PREFECT_API_URL"] = "https://elsewhere.example/api"
    access.use_passwords(tmp_path)
    assert "PREFECT_API_AUTH_STRING" not in os.environ
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "x"


def test_a_store_that_cannot_be_made_is_told_by_its_setting(capsys):
    arguments = main.build_parser().parse_args(["up", "--store", "/proc/foo"])
    assert main.attempt(arguments) == 2
    told = capsys.readouterr().err
    why = "cannot be written: No such file or directory; choose another folder"
    assert told == f"error: --store /proc/foo: {why}\n"
