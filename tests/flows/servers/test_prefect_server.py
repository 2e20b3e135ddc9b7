"""Which server a process talks to."""

import os

import pytest

from flows.servers import prefect_server


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
    with prefect_server.connect_prefect(tmp_path) as started:
        assert started is None
        assert os.environ["PREFECT_API_URL"] == address
