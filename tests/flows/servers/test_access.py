"""Who may read a store, and when `up` asks for a password."""

import json
import os
import stat

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.cli import main
from amazon_electra.flows.servers import access


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
    with pytest.raises(UserError, match=r"STORE_GROUP.*staff"):
        access.restrict_store(tmp_path / "other")


@pytest.fixture
def environment(monkeypatch):
    """The environment of this process without Prefect's and MLflow's variables."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW"))}
    monkeypatch.setattr(os, "environ", kept)
    return kept


NAMES = {name for names in access.VARIABLES.values() for name in names}


def test_up_makes_one_password_for_both_servers_unless_it_is_to_have_none(
    environment, tmp_path, capsys
):
    path = tmp_path / access.PASSWORD_FILE
    access.prepare_passwords(tmp_path, True)
    assert not path.exists()
    assert not NAMES & environment.keys()
    assert "--no-password" in capsys.readouterr().err
    access.prepare_passwords(tmp_path, False)
    assert path.stat().st_mode & 0o777 == 0o600
    known = json.loads(path.read_text())
    assert set(known) == NAMES
    assert known.items() <= environment.items()
    word = known["MLFLOW_TRACKING_PASSWORD"]
    assert known["PREFECT_API_AUTH_STRING"] == f"electra:{word}"
    assert word in capsys.readouterr().out
    for name in NAMES:
        del environment[name]
    access.prepare_passwords(tmp_path, False)
    assert known.items() <= environment.items()
    assert not capsys.readouterr().out, "it is told once"


def test_a_password_of_the_environment_stays_and_its_clients_have_it(environment, tmp_path):
    """An address of a server elsewhere does not leave `up`'s own servers open."""
    environment["PREFECT_SERVER_API_AUTH_STRING"] = "me:mine"
    environment["PREFECT_API_URL"] = environment["MLFLOW_TRACKING_URI"] = "https://elsewhere/api"
    access.prepare_passwords(tmp_path, False)
    assert environment["PREFECT_API_AUTH_STRING"] == "me:mine"
    assert environment["MLFLOW_TRACKING_PASSWORD"] in (tmp_path / "password.json").read_text()


def test_a_server_elsewhere_is_not_told_the_password(environment, tmp_path):
    write_passwords(tmp_path)
    environment["PREFECT_API_URL"] = "https://elsewhere.example/api"
    access.use_passwords(tmp_path)
    assert "PREFECT_API_AUTH_STRING" not in environment
    assert environment["MLFLOW_TRACKING_PASSWORD"] == "x"


def write_passwords(store, mode=0o600, **more):
    """The file of a store with a password, and with what somebody else wrote into it."""
    known = {"PREFECT_API_AUTH_STRING": "electra:x", "MLFLOW_TRACKING_PASSWORD": "x", **more}
    path = store / access.PASSWORD_FILE
    path.write_text(json.dumps(known))
    path.chmod(mode)
    return path


def refusal_of(store):
    """What the file's refusal says; nothing of it is in the environment."""
    before = dict(os.environ)
    told = []
    for read in (access.use_passwords, lambda store: access.prepare_passwords(store, False)):
        with pytest.raises(UserError) as refused:
            read(store)
        told.append(str(refused.value))
    assert dict(os.environ) == before
    assert len(set(told)) == 1
    assert told[0].startswith(f"{store / access.PASSWORD_FILE}: ")
    assert "\n" not in told[0]
    return told[0]


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "PREFECT_API_URL"])
def test_a_file_of_passwords_sets_no_other_variable(environment, tmp_path, name):
    write_passwords(tmp_path, **{name: "cwd/evil.so"})
    assert name in refusal_of(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"MLFLOW_TRACKING_PASSWORD": 5}', "[" * 9999])
def test_a_file_that_is_none_of_passwords_is_told(environment, tmp_path, text):
    write_passwords(tmp_path).write_text(text)
    refusal_of(tmp_path)


def test_a_pipe_in_its_place_is_told(environment, tmp_path):
    os.mkfifo(tmp_path / access.PASSWORD_FILE, 0o600)
    refusal_of(tmp_path)


def test_a_file_that_others_may_write_is_not_read(environment, tmp_path, monkeypatch):
    for mode in (0o602, 0o620, 0o666):
        write_passwords(tmp_path, mode)
        refusal_of(tmp_path)
    monkeypatch.setenv("AMAZON_ELECTRA_STORE_GROUP", "true")
    refusal_of(tmp_path)
    write_passwords(tmp_path, 0o660)
    access.use_passwords(tmp_path)
    assert environment["MLFLOW_TRACKING_PASSWORD"] == "x"


@pytest.mark.parametrize(
    ("shared", "owner", "group", "is_read"),
    [
        *((False, 0, 0, True), (False, 1, 0, False), (True, 1, 0, True)),
        *((True, 2, 0, False), (True, 1, 1, False)),
    ],
)
def test_a_file_of_somebody_else_is_not_read(shared, owner, group, is_read):
    """Owner 0 is this user, 1 the store's, 2 another one; group 0 is the store's."""
    users = [os.geteuid(), os.geteuid() + 1, os.geteuid() + 2]

    def status(mode, user, group):
        return os.stat_result((mode, 0, 0, 1, user, group, 0, 0, 0, 0))

    file = status(stat.S_IFREG | (0o660 if shared else 0o600), users[owner], 50 + group)
    store = status(stat.S_IFDIR | 0o770, users[1], 50)
    assert (access.find_other_writer(file, store, shared) == "") is is_read


def test_a_store_that_cannot_be_made_is_told_by_its_setting(capsys):
    arguments = main.build_parser().parse_args(["up", "--store", "/proc/foo"])
    assert main.attempt(arguments) == 2
    told = capsys.readouterr().err
    why = "cannot be written: No such file or directory; choose another folder"
    assert told == f"error: --store /proc/foo: {why}\n"
