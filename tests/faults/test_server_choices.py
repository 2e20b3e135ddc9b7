"""Both servers with a password, and on PostgreSQL; what goes wrong at the start is told in one clear line."""

import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode

import pytest

from flows.servers import free_port
from flows.store import Store

POSTGRES = shutil.which("initdb") or shutil.which("/usr/lib/postgresql/15/bin/initdb")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_"))}


def electra(*words, environment=CLEAN, seconds=200):
    command = [sys.executable, "-m", "flows.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)


def answer(url, login=""):
    request = urllib.request.Request(url)
    if login:
        request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.fixture
def ports():
    return free_port(), free_port()


def up(store, ports, environment):
    words = ["--store", str(store), "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    done = electra("up", "--detach", *words, environment=environment)
    assert done.returncode == 0, done.stderr
    return f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"


def test_a_port_in_use_is_a_mistake_that_names_the_option(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["--store", str(tmp_path / "store"), "--prefect-port", str(taken.getsockname()[1])]
        done = electra("up", *words)
    assert done.returncode == 2
    assert "error: --prefect-port" in done.stderr
    assert "choose another port" in done.stderr


def test_prefect_asks_for_its_password_and_guards_changes(tmp_path, ports):
    access = {"PREFECT_SERVER_API_AUTH_STRING": "electra:secret-word", "PREFECT_API_AUTH_STRING": "electra:secret-word"}
    store = tmp_path / "store"
    prefect, _ = up(store, ports, {**CLEAN, **access})
    try:
        assert answer(f"{prefect}/api/admin/version") == 401
        assert answer(f"{prefect}/api/admin/version", "electra:wrong") == 401
        assert answer(f"{prefect}/api/admin/version", "electra:secret-word") == 200
        change = urllib.request.Request(f"{prefect}/api/flows/", data=b'{"name": "x"}', method="POST")
        change.add_header("Authorization", f"Basic {b64encode(b'electra:secret-word').decode()}")
        change.add_header("Content-Type", "application/json")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(change, timeout=10)
        assert electra("status", "--store", str(store)).returncode == 0
        again = electra("up", "--store", str(store))
        assert again.returncode == 2
        assert "it is up already" in again.stderr
        written = [p for p in store.rglob("*") if p.is_file() and b"secret-word" in p.read_bytes()]
        assert written == []
    finally:
        assert electra("down", "--store", str(store)).returncode == 0
    assert electra("status", "--store", str(store)).returncode == 1


@pytest.fixture
def postgresql(tmp_path):
    """A server of Debian's PostgreSQL with one database for each."""
    if not POSTGRES or os.geteuid() != 0:
        pytest.skip("needs Debian's PostgreSQL, and root to become its user")
    binaries, folder, port = os.path.dirname(os.path.realpath(POSTGRES)), tmp_path / "postgresql", free_port()
    folder.mkdir()
    shutil.chown(folder, "postgres", "postgres")
    for parent in [folder, *folder.parents][:4]:
        parent.chmod(0o755)
    folder.chmod(0o700)
    as_postgres = ["runuser", "-u", "postgres", "--"]
    subprocess.run([*as_postgres, f"{binaries}/initdb", "-D", str(folder), "-A", "trust"], check=True, cwd="/")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    control = [*as_postgres, f"{binaries}/pg_ctl", "-D", str(folder), "-w"]
    subprocess.run([*control, "-o", options, "-l", f"{folder}/log", "start"], check=True, cwd="/")
    psql = ["psql", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
    for name in ("prefect", "mlflow"):
        subprocess.run([*psql, "-c", f"create database {name}"], check=True)
    subprocess.run([*psql, "-d", "prefect", "-c", "create extension pg_trgm"], check=True)
    yield psql, f"postgres@127.0.0.1:{port}"
    subprocess.run([*control, "-m", "immediate", "stop"], cwd="/")


@pytest.mark.timeout(500)
def test_a_run_on_postgresql_leaves_nothing_in_sqlite(postgresql, tmp_path, ports):
    psql, address = postgresql
    databases = {
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{address}/prefect",
        "MLFLOW_BACKEND_STORE_URI": f"postgresql+psycopg2://{address}/mlflow",
    }
    store = tmp_path / "store"
    up(store, ports, {**CLEAN, **databases})
    try:
        run = [sys.executable, "-m", "tests.flows.toy_graph", str(store)]
        subprocess.run(run, check=True, env={**CLEAN, **databases}, timeout=200)
        assert len(Store(store).manifests()) == 8
        count = {"prefect": "select count(*) from flow_run", "mlflow": "select count(*) from runs"}
        for database, query in count.items():
            found = subprocess.run([*psql, "-d", database, "-Atc", query], check=True, capture_output=True, text=True)
            assert int(found.stdout) == {"prefect": 1, "mlflow": 4}[database]
        assert not list(store.glob("*/*.db"))
    finally:
        assert electra("down", "--store", str(store)).returncode == 0
