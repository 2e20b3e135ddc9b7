"""Both servers on PostgreSQL."""

import subprocess
import sys

import pytest

from amazon_electra.flows.store.store import Store
from tests.postgresql import IS_HERE, serve_postgresql
from tests.served import CLEAN, serve


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


def test_a_run_on_postgresql_leaves_nothing_in_sqlite(postgresql, tmp_path):
    psql, address = postgresql
    databases = {
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{address}/prefect",
        "MLFLOW_BACKEND_STORE_URI": f"postgresql+psycopg2://{address}/mlflow",
    }
    store = tmp_path / "store"
    with serve(store, databases):
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
        assert not list(store.glob("*/mlflow.db")), list(store.glob("*/prefect.db"))
