"""One real Prefect server for all tests of the flow."""

import logging
import os

import pytest

from flows.servers import prefect_server


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory):
    """Its store; the environment of this process points at the server while the tests run."""
    from prefect.context import refresh_global_settings_context

    before = dict(os.environ)
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    store = tmp_path_factory.mktemp("prefect") / "store"
    with prefect_server.connect_prefect(store) as server:
        server.wait()
        refresh_global_settings_context()
        yield store
        prefect_server.flush_prefect(
            60
        )  # at the end of the process they would wait for a server that has ended
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _object_store_in_memory(monkeypatch):
    """Stands for the object stores; elsewhere such addresses are refused."""
    monkeypatch.setenv("AMAZON_ELECTRA_ADDRESS_SCHEMES", "memory")


@pytest.fixture
def heard(caplog):
    """What our own loggers say, also after Prefect or a Beam job has set up the logging of this
    process its own way.
    """
    ours = logging.getLogger("amazon_electra")
    caplog.set_level(logging.WARNING, ours.name)
    ours.addHandler(caplog.handler)
    yield caplog
    ours.removeHandler(caplog.handler)
