"""What a run says of pools before anything is made, and of a stage that a worker could not make."""

import re

import pytest
from prefect.states import Cancelled, Crashed, Failed

from beam_jobs.job.errors import TransientError, UserError
from flows.configuration.engine import Engine
from flows.configuration.settings import fill_parameters
from flows.run_stage import divide_order
from flows.runner.pools import messages
from flows.runner.pools.child_run import PoolRunFailed, raise_failure
from flows.runner.pools.maker import choose_pool, is_soon_needed
from flows.runner.pools.order import Order
from flows.runner.store import Store
from flows.runs.placement_check import check_placement
from flows.stages.pretraining import shares_cores
from tests.flows.pools.test_stage_json import plan

POOLS = Engine(placement="pools")
EXCEPTION = "Flow run encountered an exception: "
AWAY = "--store s3://x: the server cannot be reached: no route"


def test_data_goes_to_one_pool_and_training_to_the_other(tmp_path):
    pools = {stage.name: choose_pool(stage, "tpu") for stage in plan(tmp_path)}
    assert pools == {
        **dict.fromkeys(("corpus", "vocabulary", "shards", "dev-shards"), "cpu"),
        **dict.fromkeys(("pretraining", "finetuning", "evaluation"), "tpu"),
    }


@pytest.mark.parametrize(
    ("data_seconds", "stays"),
    [((5.0, 2.0, 3.0, 1.0), True), ((5.0, 40.0, 3.0, 1.0), False), (None, False)],
)
def test_a_worker_waits_for_what_comes_soon_and_not_for_long_stages(tmp_path, data_seconds, stays):
    stages = plan(tmp_path)
    seconds = [*(data_seconds or [None] * 4), *[100.0] * (len(stages) - 4)]
    planned = list(zip(stages, seconds, strict=True))
    assert is_soon_needed("tpu", planned, "tpu") == stays
    assert is_soon_needed("cpu", planned, "tpu"), "that is what comes next"
    assert not is_soon_needed("cpu", planned[4:], "tpu"), "nothing is left for it"


def test_a_training_pool_without_pools_is_refused():
    with pytest.raises(UserError, match=r"training_pool.*placement"):
        fill_parameters(["engine.training_pool=tpu"])


def test_elsewhere_only_the_form_tells_whether_trainings_share_a_cpu():
    placed = ["engine.placement=pools"]
    assert shares_cores(fill_parameters([*placed, "pretraining.device=cpu"]))
    assert not shares_cores(fill_parameters(placed))


def test_an_accelerator_takes_pre_training_first_and_a_cpu_all_at_once(tmp_path):
    _, _, _, _, training, *cells = plan(tmp_path)
    chains = [[training], cells[:2]]
    assert divide_order(Order(chains, 2, "cuda")) == [([[training]], 1), ([cells[:2]], 2)]
    assert divide_order(Order(chains, 2, "cpu")) == [(chains, 2)]
    assert divide_order(Order(device="cuda")) == []


@pytest.mark.usefixtures("prefect_home")
def test_a_message_that_is_sent_twice_is_one():
    from prefect import flow
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        run = client.create_flow_run(flow(name="somebody's")(lambda: None)).id
        assert not messages.find_order(client, run, 1)
        for _ in range(2):
            messages.post_order(client, run, 1, "one")
            messages.post_answer(client, run, 10)
        assert messages.find_order(client, run, 1) == "one"
        assert messages.has_answer(client, run, 10)
        assert not messages.has_answer(client, run, 1)


@pytest.mark.usefixtures("prefect_home")
def test_pools_that_are_not_there_are_told_before_anything_is_made(tmp_path):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    stages = plan(tmp_path)
    with get_client(sync_client=True) as client:
        for pool in ("cpu", "accelerator"):
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"), overwrite=True)
            for found in client.read_deployments():
                if found.name == f"run-stage-{pool}":
                    client.delete_deployment(found.id)
    with pytest.raises(UserError, match=r"knows no pool accelerator that makes stages: .*\.sh"):
        check_placement(POOLS, Store(tmp_path), stages)
    from flows.run_stage import run_stage

    for pool in ("cpu", "accelerator"):
        run_stage.to_deployment(name=f"run-stage-{pool}", work_pool_name=pool).apply()
    with pytest.raises(UserError, match=r"no worker of the pool accelerator is alive: start one"):
        check_placement(POOLS, Store(tmp_path), stages)
    check_placement(Engine(), Store(tmp_path), stages)
    check_placement(POOLS, Store(tmp_path), [])


def test_a_bucket_needs_an_mlflow_that_all_hosts_reach(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store = Store(tmp_path)
    store.address = "s3://bucket/runs"
    with pytest.raises(UserError, match="set MLFLOW_TRACKING_URI to a server that all hosts reach"):
        check_placement(POOLS, store, [])


@pytest.mark.parametrize(
    ("state", "kind", "told"),
    [
        (
            Failed(message=f"{EXCEPTION}UserError: corpus: no file x"),
            UserError,
            "corpus: no file x",
        ),
        (
            Failed(message=f"{EXCEPTION}JobFailed: corpus failed: KeyError"),
            PoolRunFailed,
            "corpus failed: KeyError",
        ),
        (
            Failed(message=f"{EXCEPTION}TransientError: {AWAY}"),
            TransientError,
            f"corpus: its worker of the pool cpu: {AWAY}",
        ),
        (
            Failed(message=f"{EXCEPTION}ConnectTimeout: "),
            TransientError,
            "corpus: its worker of the pool cpu: ConnectTimeout",
        ),
        (
            Crashed(message="no sign of life"),
            TransientError,
            "corpus: its worker of the pool cpu was lost: no sign of life",
        ),
        (Cancelled(), PoolRunFailed, "corpus: its run on the pool cpu was cancelled"),
    ],
)
def test_the_cause_of_a_failure_there_is_told_here_in_one_line(state, kind, told):
    with pytest.raises(kind, match=f"^{re.escape(told)}$"):
        raise_failure(state, "cpu", "corpus")
