"""What a run says of pools before anything is made, and of a stage that a worker could not make."""

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed, Failed, Pending

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.runner.pools import maker
from amazon_electra.flows.runner.pools.maker import (
    PoolStageMaker,
    build_failed_state,
    cancel_on_error,
    choose_pool,
    name_deployment,
    raise_failure,
    wait_for_run,
)
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.stages.pretraining import shares_cores
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_run import Tracking
from tests.flows.pools.test_request import plan


def test_data_goes_to_one_pool_and_training_to_the_other(tmp_path):
    pools = {stage.name: choose_pool(stage, "tpu") for stage in plan(Store(tmp_path))}
    assert pools == {
        **dict.fromkeys(("corpus", "vocabulary", "shards", "dev-shards"), "cpu"),
        **dict.fromkeys(("pretraining", "finetuning", "evaluation", "model"), "tpu"),
    }


def test_elsewhere_only_the_form_tells_whether_trainings_share_a_cpu():
    placed = fill_parameters(["engine.placement=pools"]).engine
    assert shares_cores("cpu", placed)
    assert not shares_cores("auto", placed)


def create_maker(store, address=""):
    if address:
        store.address = address
    runner = StageRunner(store, [], Tracking(f"sqlite:///{store.root}/m.db"))
    return PoolStageMaker(runner, "accelerator")


@pytest.mark.usefixtures("prefect_home")
def test_pools_that_are_not_there_are_told_before_anything_is_made(tmp_path):
    from amazon_electra.flows.pool_worker import run_stage

    stages, maker = plan(Store(tmp_path)), create_maker(Store(tmp_path))
    with get_client(sync_client=True) as client:
        for pool in ("cpu", "accelerator"):
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"), overwrite=True)
            try:
                known = client.read_deployment_by_name(name_deployment(pool))
            except ObjectNotFound:
                continue
            client.delete_deployment(known.id)
    with pytest.raises(UserError, match="pool accelerator"):
        maker.check_pools(stages)
    for pool in ("cpu", "accelerator"):
        run_stage.to_deployment(name=f"run-stage-{pool}", work_pool_name=pool).apply()
    with pytest.raises(UserError, match="worker of the pool accelerator"):
        maker.check_pools(stages)
    maker.check_pools([])


def test_a_bucket_needs_an_mlflow_that_all_hosts_reach(tmp_path):
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI"):
        create_maker(Store(tmp_path), "s3://bucket/runs").check_pools([])


@pytest.fixture
def waiting(prefect_home):
    """A run that nobody makes, and a client."""
    from prefect import flow

    with get_client(sync_client=True) as client:
        yield client, client.create_flow_run(flow(name="somebody's")(lambda: None), state=Pending())


def test_a_run_that_a_worker_took_and_never_began_is_crashed(waiting, monkeypatch):
    monkeypatch.setattr(maker, "PENDING_SECONDS", 0.5)
    state = wait_for_run(waiting[1].id, "cpu", "corpus")
    assert (state.is_crashed(), state.message) == (True, "the worker that took it never began it")


def test_whoever_stops_waiting_cancels_the_run_unless_it_is_over(waiting):
    client, run = waiting
    with pytest.raises(KeyboardInterrupt), cancel_on_error(run.id):
        raise KeyboardInterrupt
    assert client.read_flow_run(run.id).state.type in ("CANCELLING", "CANCELLED")
    client.set_flow_run_state(run.id, Failed(), force=True)
    with pytest.raises(KeyboardInterrupt), cancel_on_error(run.id):
        raise KeyboardInterrupt
    assert client.read_flow_run(run.id).state.is_failed()


@pytest.mark.parametrize(
    ("state", "kind", "cause"),
    [
        (build_failed_state(UserError("corpus: no\nfile")), UserError, "corpus: no file"),
        (build_failed_state(TransientError("no route")), TransientError, "no route"),
        (build_failed_state(ConnectionResetError("reset")), TransientError, "reset"),
        (build_failed_state(KeyError("a bug")), JobFailed, "a bug"),
        (Crashed(message="no sign of life"), TransientError, "no sign of life"),
        (Cancelled(), JobFailed, "cpu"),
    ],
)
def test_the_cause_of_a_failure_there_is_reported_here_in_one_line(state, kind, cause):
    with pytest.raises(kind, match=cause) as raised:
        raise_failure(state, "cpu", "corpus")
    assert type(raised.value) is kind
    assert "\n" not in str(raised.value)
