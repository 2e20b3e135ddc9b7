"""Jobs of one thread get the cores that nothing else of their run needs."""

import os

import pytest

from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker
from amazon_electra.flows.runner.stage_runner import StageRunner, allocate_threads
from amazon_electra.flows.stages.finetuning import Start, build_finetuning
from amazon_electra.flows.store.stage import Group
from amazon_electra.flows.store.store import Store
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.tracking.mlflow_run import Tracking
from tests.flows.toy_graph import job


def make_cells(count):
    """Return chains as a study has them."""
    chains = []
    for seed in range(count):
        asked = FinetuneConfig(task="polarity", seed=seed)
        finetuned = build_finetuning("toy", asked, job("toy", {}, {}), Start(is_random=True))
        chains.append((finetuned, finetuned.evaluation))
    return chains


def read_threads(chains, at_once):
    given = allocate_threads(chains, at_once)
    assert [[stage.fingerprint for stage in chain] for chain in given] == [
        [stage.fingerprint for stage in chain] for chain in chains
    ]
    stages = [stage for chain in given for stage in chain]
    return [stage.list_environment(None).get("OMP_NUM_THREADS") for stage in stages]


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


def test_a_job_alone_has_all_cores(tmp_path, call_in_flow):
    tuned = job("small", {}, {})
    evaluated = job("small", {"model": tuned}, {})
    store = Store(tmp_path / "store")
    maker = PrefectStageMaker(StageRunner(store, [], Tracking(f"sqlite:///{tmp_path}/m.db")))
    call_in_flow(lambda: maker.make_group(Group.of(tuned, evaluated)))
    read = [(store.folder(stage) / "threads").read_text() for stage in (tuned, evaluated)]
    assert read == [str(os.cpu_count())] * 2
