"""Both servers with a password, and on PostgreSQL."""

import json
import subprocess
import sys

import httpx
import psutil
import pytest

from amazon_electra.flows.servers.health import find_free_port
from amazon_electra.flows.store.store import Store
from tests.patience import PATIENCE_SECONDS
from tests.postgresql import IS_HERE, serve_postgresql
from tests.served import CLEAN, electra


def answer(url, word="", **headers):
    """The code of the answer to who knows this password."""
    auth = ("electra", word) if word else None
    return httpx.get(url, auth=auth, headers=headers, timeout=PATIENCE_SECONDS).status_code


@pytest.fixture
def ports():
    return find_free_port(), find_free_port()


def up(store, ports, environment):
    words = ["--store", store, "--prefect-port", ports[0], "--mlflow-port", ports[1]]
    done = electra("up", "--detach", "--no-password", *words, environment=environment)
    assert done.returncode == 0, done.stderr
    return f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"


WORD = "a-secret-word-of-the-tests"
ACCESS = {
    "PREFECT_SERVER_API_AUTH_STRING": f"electra:{WORD}",
    "PREFECT_API_AUTH_STRING": f"electra:{WORD}",
    "MLFLOW_TRACKING_USERNAME": "electra",
    "MLFLOW_TRACKING_PASSWORD": WORD,
}


def test_both_servers_ask_for_the_password_and_it_is_written_nowhere(tmp_path, ports):
    store = tmp_path / "store"
    prefect, mlflow = up(store, ports, {**CLEAN, **ACCESS})
    try:
        experiment = f"{mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0"
        for address in (f"{prefect}/api/admin/version", experiment):
            assert answer(address) == answer(address, "wrong-word-of-the-tests") == 401
            assert answer(address, WORD) == 200
        assert electra("status", "--store", str(store)).returncode == 0, "health needs no password"
        change = httpx.post(f"{prefect}/api/flows/", json={"name": "x"}, auth=("electra", WORD))
        assert change.status_code == 403, "a change needs a token too"
        named = answer(experiment, WORD, Host="elsewhere.example")
        assert named == 403, "a name that is not this machine's"
        run = [sys.executable, "-m", "tests.flows.toy_graph", str(store)]
        addresses = {"PREFECT_API_URL": f"{prefect}/api", "MLFLOW_TRACKING_URI": mlflow}
        subprocess.run(run, check=True, env={**CLEAN, **ACCESS, **addresses})
        made = f"{mlflow}/api/2.0/mlflow/experiments/get-by-name?experiment_name=domain-adaptation"
        assert answer(made, WORD) == 200, "the run was let in"
        assert outside(store) == set()
        again = electra("up", "--no-password", "--store", str(store))
        assert again.returncode == 2
        assert "it is up already" in again.stderr
    finally:
        assert electra("down", "--store", str(store)).returncode == 0
    assert electra("status", "--store", str(store)).returncode == 1
    assert {path for path in store.rglob("*") if path.stat().st_mode & 0o077} == set()
    written = [p for p in store.rglob("*") if p.is_file() and WORD.encode() in p.read_bytes()]
    assert written == []


def outside(store):
    """Addresses off this machine that a process of these servers is connected to."""
    top = psutil.Process(json.loads((store / "servers.json").read_text())["pid"])
    found = set()
    for process in [top, *top.children(recursive=True)]:
        found |= {c.raddr.ip for c in process.net_connections("inet") if c.raddr}
    return found - {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.fixture
def postgresql():
    """A server of Debian's PostgreSQL with one database for each."""
    if not IS_HERE:
        pytest.skip("needs Debian's PostgreSQL, and root to become its user")
    with serve_postgresql() as (psql, port):
        for name in ("prefect", "mlflow"):
            subprocess.run([*psql, "-c", f"create database {name}"], check=True)
        subprocess.run([*psql, "-d", "prefect", "-c", "create extension pg_trgm"], check=True)
        yield psql, f"postgres@127.0.0.1:{port}"


def test_a_run_on_postgresql_leaves_nothing_in_sqlite(postgresql, tmp_path, ports):
    psql, address = postgresql
    databases = {
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql://{address}/prefect",
        "MLFLOW_BACKEND_STORE_URI": f"postgresql://{address}/mlflow",
    }
    store = tmp_path / "store"
    up(store, ports, {**CLEAN, **databases})
    try:
        run = [sys.executable, "-m", "tests.flows.toy_graph", str(store)]
        subprocess.run(run, check=True, env={**CLEAN, **databases})
        assert len(Store(store).list_manifests()) == 8
        count = {
            "prefect": "select count(*) from flow_run where start_time is not null",
            "mlflow": "select count(*) from runs",
        }
        for database, query in count.items():
            words = [*psql, "-d", database, "-Atc", query]
            assert int(subprocess.check_output(words)) == {"prefect": 1, "mlflow": 4}[database]
        assert not list(store.glob("*/*.db"))
    finally:
        assert electra("down", "--store", str(store)).returncode == 0
