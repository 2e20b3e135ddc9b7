"""Jobs of one thread get the cores that nothing else of their run needs."""

import os
from dataclasses import replace

import pytest

from flows.runner.prefect_tasks import PrefectStageMaker
from flows.runner.stage_runner import ONE_THREAD, StageRunner, give_threads
from flows.stages.finetuning import Finetuning, build_evaluation_stage, build_finetuning_stage
from flows.stages.finetuning import Start as FinetuningStart
from flows.store.store import Store
from model.tracking.mlflow_run import Tracking
from tests.flows.toy_graph import job


def make_cells(count):
    """Return chains as a study has them."""
    chains = []
    for seed in range(count):
        chosen = Finetuning(
            FinetuningStart(kind="random"), "polarity", seed, job("data", {}, {}), {}
        )
        finetuned = build_finetuning_stage(chosen, "", {})
        chains.append((finetuned, build_evaluation_stage(chosen, finetuned)))
    return chains


def read_threads(chains, at_once):
    given = give_threads(chains, at_once)
    assert [[stage.fingerprint for stage in chain] for chain in given] == [
        [stage.fingerprint for stage in chain] for chain in chains
    ]
    return [stage.environment.get("OMP_NUM_THREADS") for chain in given for stage in chain]


@pytest.mark.parametrize(
    ("cells", "at_once", "cores", "threads"), [(1, 2, 2, "2"), (3, 2, 4, "2"), (2, 8, 1, "1")]
)
def test_cells_share_the_cores(cells, at_once, cores, threads, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert read_threads(make_cells(cells), at_once) == 2 * cells * [threads]


def test_beside_a_job_that_leaves_them_a_core_each_they_take_one(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    chains = [(job("pretraining", {}, {}),), *make_cells(1)]
    assert read_threads(chains, 2) == [None, "1", "1"]


@pytest.fixture
def cell():
    """A fine-tuning and its evaluation, as one chain."""
    tuned = replace(job("finetuning", {}, {}), environment=ONE_THREAD)
    return tuned, replace(job("evaluation", {"model": tuned}, {}), environment=ONE_THREAD)


def read_threads_of_jobs(store, chain):
    return [(store.folder(stage) / "threads").read_text() for stage in chain]


def test_a_job_alone_is_started_with_all_cores(tmp_path, prefect_home, cell):
    from prefect import flow

    store = Store(tmp_path / "store")
    runner = StageRunner(store, [], Tracking(f"sqlite:///{tmp_path}/m.db"))
    flow(lambda: PrefectStageMaker(runner).make_side_by_side([cell], 2))()
    assert read_threads_of_jobs(store, cell) == 2 * [str(os.cpu_count())]


def test_a_worker_of_a_pool_gives_the_threads_of_the_order(tmp_path, prefect_home, cell):
    """It may have a part of a run's cells, whose bytes are to be those of a run in one place."""
    from prefect import flow

    store = Store(tmp_path / "store")
    runner = StageRunner(store, [], Tracking(f"sqlite:///{tmp_path}/m.db"))
    flow(lambda: PrefectStageMaker(runner).make_chains([cell], 1))()
    assert read_threads_of_jobs(store, cell) == ["1", "1"]
