"""One real Prefect server for all tests of the flow."""

import os

import pytest

from amazon_electra.flows.servers import prefect_server
from amazon_electra.flows.store.store import Store
from tests.flows.forms import fill_parameters
from tests.flows.made import plan_stages, write_encoder
from tests.patience import PATIENCE_SECONDS, eventually


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory, begin_store):
    """Its store; the environment of this process points at the server while the tests run."""
    from prefect.context import refresh_global_settings_context

    before = dict(os.environ)
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    store = begin_store(tmp_path_factory.mktemp("home") / "store")
    prefect_server.connect_prefect(store)
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
    """Calls something in a flow; what it gave or raised, and the flow's task runs.

    Prefect writes task runs down a moment later, in their order: all of them, once the last one.
    What the function gave is kept here: the state of a flow whose server answered late comes from
    the server, which has no results.
    """
    from prefect import flow, task
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.runtime import flow_run

    def call(function):
        ids, outcome = [], []

        @task(task_run_name="last")
        def mark_end(): ...

        @flow
        def calling():
            ids.append(flow_run.id)
            try:
                outcome.append(function())
            except BaseException as failure:
                outcome.append(failure)
                raise
            finally:
                mark_end()

        calling(return_state=True)
        of_flow = FlowRunFilter(id={"any_": ids})
        with get_client(sync_client=True) as client:

            def list_runs():
                runs = client.read_task_runs(flow_run_filter=of_flow)
                is_over = any(run.name == "last" and run.state.is_final() for run in runs)
                return [run for run in runs if run.name != "last"] if is_over else None

            runs = eventually(list_runs)
        return outcome[0], runs

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
