"""Which server a process talks to."""

import os

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.servers import prefect_server


@pytest.fixture(autouse=True)
def _environment_as_before():
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(
    "address",
    ["https://api.prefect.cloud/api/accounts/A/workspaces/W", "http://prefect.example:4200/api"],
)
def test_the_address_of_prefect_stays_as_it_is_given(tmp_path, address):
    os.environ["PREFECT_API_URL"] = address
    prefect_server.connect_prefect(tmp_path)
    assert os.environ["PREFECT_API_URL"] == address
    assert not list(tmp_path.iterdir()), "no server is started"


def test_postgresql_addresses_may_leave_out_the_driver_or_name_the_others():
    schemes = ("postgres://", "postgresql://", "postgresql+psycopg2://", "postgresql+asyncpg://")
    for scheme in schemes:
        found = prefect_server.set_database_driver(f"{scheme}u:p@host/prefect", "asyncpg")
        assert found == "postgresql+asyncpg://u:p@host/prefect"
    sqlite = "sqlite:////data/x.db"
    assert prefect_server.set_database_driver(sqlite, "psycopg2") == sqlite


def test_a_database_that_sqlite_could_not_use_is_told_before_anything_is_made(tmp_path):
    file = tmp_path / "prefect" / "prefect.db"
    prefect_server.check_database_file(file)
    file.parent.mkdir()
    file.write_text("no database")
    with pytest.raises(UserError, match=r"prefect\.db"):
        prefect_server.start_prefect_server(tmp_path, 1)
    file.write_bytes(b"")
    prefect_server.check_database_file(file)
    far = tmp_path.joinpath(*["x" * 200] * 3)
    with pytest.raises(UserError, match="x" * 200):
        prefect_server.start_prefect_server(far, 1)
    assert not far.exists()
