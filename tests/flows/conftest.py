"""One real Prefect server for all tests of the flow."""

import os

import pytest

from amazon_electra.flows.servers import stock
from amazon_electra.flows.store.store import Store
from tests.flows.forms import fill_parameters
from tests.flows.made import plan_stages, write_encoder
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory, begin_store):
    """Its store; the environment of this process points at the server while the tests run."""
    from prefect.context import refresh_global_settings_context

    before = dict(os.environ)
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    store = begin_store(tmp_path_factory.mktemp("home") / "store")
    stock.connect_prefect(store)
    refresh_global_settings_context()
    yield store
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _patience_with_mlflow(monkeypatch):
    """A slow machine sends to MLflow as much as a fast one before a run ends."""
    monkeypatch.setattr("amazon_electra.model.tracking.mlflow_run.CLOSE_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def call_in_flow(prefect_home):
    """Calls something in a flow and returns what it gave. That is kept here: the state of a flow
    whose server answered late comes from the server, which has no results.
    """
    from prefect import flow

    def call(function):
        given = []
        flow(lambda: given.append(function()), name="calling")()
        return given[0]

    return call


@pytest.fixture
def encoder(tmp_path):
    """A folder that looks like a published encoder's."""
    return write_encoder(tmp_path / "mini-bert")


@pytest.fixture
def list_stages(tmp_path):
    """The store, and the stages of a run by their labels, in order."""
    store = Store(tmp_path / "store")

    def of(*settings, dump="sample:50"):
        form = fill_parameters(settings, dump={"paths": [str(dump)]}, store=str(store.root))
        return store, {stage.label: stage for stage in plan_stages(form, store)}

    return of
