"""One real Prefect server for all tests of the flow."""

import logging
import os

import pytest

from flows import servers


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory):
    """Its store; the environment of this process points at the server while the tests run."""
    from prefect.context import refresh_global_settings_context

    before = dict(os.environ)
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    store = tmp_path_factory.mktemp("prefect") / "store"
    with servers.prefect_for(store) as server:
        server.wait()
        refresh_global_settings_context()
        yield store
        servers.let_prefect_finish(60)  # at the end of the process they would wait for a server that has ended
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def heard(caplog):
    """What our own loggers say, also after Prefect or a Beam job has set up the logging of this process its own way."""
    ours = logging.getLogger("amazon_electra")
    caplog.set_level(logging.WARNING, ours.name)
    ours.addHandler(caplog.handler)
    yield caplog
    ours.removeHandler(caplog.handler)
