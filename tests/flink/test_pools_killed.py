"""Ten kills in one run across hosts whose data stages Flink makes: a TaskManager in the middle of
the corpus job, then, in a random order that a seed repeats, the hosts that make stages, their
workers, a stage's job, the S3 server and the Prefect server. The end is the fingerprints and the
bytes of a run on one machine that nobody disturbed.

    AMAZON_ELECTRA_KILLS_SEED=7 python -m pytest -s tests/flink/test_pools_killed.py
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from flows.runner.store import Store
from tests.faults.test_remote_store import compare
from tests.flink.cluster import NEEDED, WORKERS, start_cluster
from tests.hosts import Host, read_children, serve_for_users
from tests.patience import eventually
from tests.postgresql import IS_HERE

SEED = int(os.environ.get("AMAZON_ELECTRA_KILLS_SEED", "0"))
PAUSE_SECONDS = 2, 5
DOWN_SECONDS = 5
STEPS = 1_000  # so many that an idle machine is not done before the last kill
SETTINGS = {
    "pretraining": {"steps": STEPS, "settings": {"checkpoint_every": "25"}},
    "finetuning": {"seeds": [0], "tasks": ["polarity"]},
}
CHOSEN = (
    *(f"pretraining.steps={STEPS}", "pretraining.checkpoint_every=25"),
    *("finetuning.seeds=0", "finetuning.tasks=polarity"),
)
DUMP = ["sample:2000"]
KILLS = (
    *("host trainer", "worker trainer", "worker data", "job", "server s3"),
    *("host trainer", "server s3", "host data", "server prefect"),
)
"""After the TaskManager."""

pytestmark = [
    *NEEDED,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not IS_HERE, reason="needs PostgreSQL, and root to become its user"),
]


@pytest.fixture(scope="module")
def flink(tmp_path_factory):
    hidden = tmp_path_factory.mktemp("hidden")
    with start_cluster(hidden, tmp_path_factory.mktemp("logs")) as flink:
        yield flink


@pytest.fixture(scope="module")
def shared(flink):
    """The servers, on the network of Flink's hosts and with its store."""
    with serve_for_users(flink.s3, flink.hosts["job"].prefix, list(flink.hosts)) as shared:
        yield shared


class Cluster:
    """Three hosts, Flink and the servers, with what a kill of each is and how it is mended."""

    def __init__(self, shared, run, flink):
        self.shared, self.run, self.flink = shared, run, flink
        self.workers = {"data": "worker-cpu", "trainer": "worker-accelerator"}
        self.hosts = {name: Host(shared, name) for name in ("flows", *self.workers)}
        self.started = {"flows": self.hosts["flows"].start("worker-flows")}
        for name in self.workers:
            self.start_worker(name)

    def start_worker(self, name):
        self.started[name] = self.hosts[name].start(self.workers[name])

    def kill(self, what):
        """Kill it and start it again, as whoever looks after it does."""
        kind, _, name = what.partition(" ")
        {
            "host": self.lose_host,
            "worker": self.kill_worker,
            "job": self.kill_job,
            "server": self.kill_server,
            "manager": self.kill_task_manager,
        }[kind](name)

    def lose_host(self, name):
        self.hosts[name].lose()
        self.started[name].wait()
        self.crash_children(name)  # as the automation does after two minutes
        self.start_worker(name)

    def kill_worker(self, name):
        self.started[name].kill()
        self.started[name].wait()
        self.start_worker(name)

    def kill_job(self, name):
        """Kill a stage's job, once there is one."""
        served = self.shared.served
        killed = eventually(
            lambda: self.kill_one_job() or (served.run(self.run).state.is_final() and "over"),
            lambda: served.told(self.run),
        )
        assert killed is True, "the run ended, and no job was killed"

    def kill_one_job(self):
        """Return whether a job was running, and is dead."""
        with suppress(psutil.NoSuchProcess):  # it has just ended by itself
            jobs = [p for host in self.hosts.values() for p in host.list_processes() if is_job(p)]
            if jobs:
                job = random.Random(SEED).choice(jobs)
                job.send_signal(signal.SIGKILL)
                job.wait(DOWN_SECONDS)
                return True
        return False

    def kill_server(self, name):
        if name == "s3":
            self.shared.s3.kill()
            time.sleep(DOWN_SECONDS)
            self.shared.s3.start()
            return
        self.shared.prefect.kill()
        self.shared.prefect.wait()
        time.sleep(DOWN_SECONDS)
        self.shared.start_prefect()

    def kill_task_manager(self, name):
        [job] = self.flink.list_jobs()
        assert job["state"] == "RUNNING"
        for process in self.flink.hosts[name].list_processes():
            process.kill()
        self.flink.start_services(name)

    def crash_children(self, name):
        """Say of the runs that a lost host had begun that they are lost."""
        from prefect.states import Crashed

        with self.shared.served.client() as client:
            for child in read_children(self.shared.served, self.run):
                its_own = self.workers[name].endswith(child.work_pool_name)
                if its_own and child.state.is_running():  # only these have heartbeats
                    lost = Crashed(message="no sign of life")
                    client.set_flow_run_state(child.id, lost, force=True)

    def find_last_sign(self):
        """When a job wrote its last line, on any host (s)."""
        logs = self.shared.folder.glob("*/.amazon-electra/*/*/*/log.txt")
        return max((log.stat().st_mtime for log in logs), default=0.0)

    def lose(self):
        for host in self.hosts.values():
            host.lose()


def is_job(process):
    words = process.cmdline()
    return "guard.py" not in " ".join(words) and any(
        word in words for word in ("beam_jobs.corpus_job", "model.pretrain", "model.finetune")
    )


def endure(served, cluster, kills):
    """Let a run go through these kills to its end, a few seconds after work went on."""
    chance = random.Random(SEED)
    for number, what in enumerate(kills):
        time.sleep(chance.uniform(*PAUSE_SECONDS))
        over = served.run(cluster.run).state.is_final()
        assert not over, f"before kill {number} of {len(kills)}: {served.told(cluster.run)}"
        kill_and_wait(served, cluster, what)
    served.wait(cluster.run, "Completed")


def kill_and_wait(served, cluster, what):
    """Kill something and wait until work goes on, or the run is over; print how long that took."""
    run, began = cluster.run, time.time()
    cluster.kill(what)
    mended = time.time()
    eventually(
        lambda: cluster.find_last_sign() > mended or served.run(run).state.is_final(),
        lambda: served.told(run),
    )
    print(f"{what:<16} work went on after {time.time() - began:5.1f} s")


def compare_with_local_run(shared, folder):
    """Compare what is in the bucket with what one machine makes that nobody disturbs."""
    words = [sys.executable, "-m", "flows.cli.main", "run", "--dump", *DUMP]
    words += ["--store", str(folder / "local"), *(w for s in CHOSEN for w in ("--set", s))]
    outside = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "PREFECT_HOME")
    alone = {name: value for name, value in os.environ.items() if name not in outside}
    local = subprocess.run(words, capture_output=True, text=True, env=alone)
    assert local.returncode == 0, local.stderr
    shared.s3.kill()
    shared.s3.start()  # what lies in the bucket counts, not what its server remembers
    compare(Store(folder / "local"), Store(shared.store))


def test_ten_kills_change_no_byte(shared, flink, tmp_path):
    served, kills = shared.served, list(KILLS)
    random.Random(SEED).shuffle(kills)
    engine = flink.engine.model_dump(exclude_defaults=True) | {"placement": "pools"}
    run = served.start("domain-adaptation", dump={"paths": DUMP}, engine=engine, **SETTINGS)
    cluster = Cluster(shared, run, flink)
    try:
        eventually(
            lambda: (
                any("/prepared/" in name for name in flink.find_names("runs"))
                or served.run(run).state.is_final()
            )
        )
        assert not served.run(run).state.is_final(), served.told(run)
        kill_and_wait(served, cluster, f"manager {WORKERS[0]}")
        endure(served, cluster, kills)
    finally:
        cluster.lose()
    assert len(flink.list_jobs()) >= 2, "corpus and shards"
    compare_with_local_run(shared, tmp_path)
