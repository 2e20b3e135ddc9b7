"""Ten kills in one run across hosts whose data stages Flink makes: a TaskManager in the middle of
the corpus job, then, in a random order that a seed repeats, the hosts that make stages, their
workers, a stage's job, the S3 server and the Prefect server.

    AMAZON_ELECTRA_KILLS_SEED=7 python -m pytest -s tests/flink/test_pools_killed.py
"""

import random

import pytest

from tests.faults.test_pools_killed import (
    DUMP,
    SEED,
    SETTINGS,
    Cluster,
    compare_with_local_run,
    endure,
)
from tests.flink.cluster import NEEDED, WORKERS, start_cluster
from tests.hosts import serve_for_users
from tests.patience import eventually
from tests.postgresql import IS_HERE

pytestmark = [
    *NEEDED,
    pytest.mark.skipif(not IS_HERE, reason="needs PostgreSQL, and root to become its user"),
]


@pytest.fixture(scope="module")
def flink(tmp_path_factory):
    with start_cluster(tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("logs")) as flink:
        yield flink


@pytest.fixture(scope="module")
def shared(flink):
    """The servers, on the network of Flink's hosts and with its store."""
    with serve_for_users(flink.s3, flink.hosts["job"].prefix) as shared:
        yield shared


class FlinkToo(Cluster):
    """The hosts of the pools, and a Flink cluster beside them."""

    def __init__(self, shared, run, flink):
        super().__init__(shared, run)
        self.flink = flink

    def kill(self, what):
        if what != "task manager":
            super().kill(what)
            return
        [job] = self.flink.list_jobs()
        assert job["state"] == "RUNNING"
        for process in self.flink.hosts[WORKERS[0]].list_processes():
            process.kill()
        self.flink.start_services(WORKERS[0])


def test_ten_kills_with_flink_change_no_byte(shared, flink, tmp_path):
    served = shared.served
    engine = flink.engine.model_dump(exclude_defaults=True)
    run = served.start("domain-adaptation", dump={"paths": DUMP}, engine=engine, **SETTINGS)
    cluster = FlinkToo(shared, run, flink)
    kills = ["host trainer", "worker trainer", "worker data", "job", "server s3"]
    kills += ["host trainer", "server s3", "host data", "server prefect"]
    random.Random(SEED).shuffle(kills)
    try:
        eventually(
            lambda: any("/prepared/" in name for name in flink.find_names("runs")),
            lambda: served.told(run),
        )
        endure(served, cluster, ["task manager", *kills])
    finally:
        cluster.lose()
    assert len(flink.list_jobs()) >= 2, "corpus and shards"
    compare_with_local_run(shared, tmp_path)
