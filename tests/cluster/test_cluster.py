"""The Beam jobs on hosts that share nothing but an S3 server: a job server on one, a pool of Python
workers on each of two, the store on a fourth.

The job server is Beam's own, which speaks to jobs and workers as the one for Flink does; how Flink
itself schedules is not tested here (deploy/flink/README.md).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beam_jobs import shards_job
from tests.beam_jobs.dumps import digests, review, run_job, write_lines
from tests.beam_jobs.engine.job_servers import POOL, ROOT, SERVER
from tests.beam_jobs.test_shards_job import vocabulary  # noqa: F401 - a fixture
from tests.cluster.hosts import Network, can_make_hosts
from tests.patience import eventually

pytestmark = pytest.mark.skipif(not can_make_hosts(), reason="no right to make network namespaces")
POOL_PORT, SERVER_PORT, SPLIT_PORT, S3_PORT = 50_000, 8099, 50_001, 8333
AWAY_SECONDS = 30
WORKER = "SdkHarness"
"""A word of the command of a worker that a pool has started."""
S3 = {  # the server takes the key from its environment as the clients do
    "AWS_ENDPOINT_URL": f"http://s3:{S3_PORT}",
    "AWS_ACCESS_KEY_ID": "owner",
    "AWS_SECRET_ACCESS_KEY": "owner-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Cluster:
    """The hosts with what runs on them, and jobs sent to them."""

    def __init__(self, network: Network, folder: Path, logs: Path):
        self.hosts, self._folder, self._logs = network.hosts, folder, logs

    def start(self) -> None:
        weed = [
            Path(sys.executable).parent / "weed",
            "server",
            "-s3",
            "-dir=.",
            f"-ip={self.hosts['s3'].address}",
        ]
        weed += ["-ip.bind=0.0.0.0", f"-s3.port={S3_PORT}"]
        weed += ["-volume.max=0", "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0"]
        self._run("s3", [*weed, "-s3.port.lance=0"])
        for name in ("worker1", "worker2"):
            self._run_module(name, POOL, "--service_port", POOL_PORT)
        pools = [f"{name}:{POOL_PORT}" for name in ("worker1", "worker2")]
        self._run_module("jobs", "tests.cluster.splitter", SPLIT_PORT, *pools)
        self._run_module("jobs", SERVER, "--port", SERVER_PORT, "--staging_dir", "staging")
        eventually(lambda: self.look("make").returncode == 0, lambda: self.read_log("s3"))

    def _run_module(self, name: str, module: str, *arguments: object) -> subprocess.Popen:
        return self._run(name, [sys.executable, "-m", module, *arguments])

    def _run(self, name: str, command: list, log: str = "") -> subprocess.Popen:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # a pool runs `python`
        environment = {**S3, "PYTHONPATH": str(ROOT), "PATH": path, "OMP_NUM_THREADS": "1"}
        return self.hosts[name].start(
            command, self._logs / f"{log or name}.log", environment, self._folder
        )

    def look(self, *words: object) -> subprocess.CompletedProcess:
        """Run tests.cluster.bucket on the jobs' host, which sees all files of this machine."""
        command = ["ip", "netns", "exec", self.hosts["jobs"].space, sys.executable]
        command += ["-m", "tests.cluster.bucket", *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=os.environ | S3
        )

    def read_names(self, folder: str) -> dict[str, str]:
        return json.loads(self.look("list", folder).stdout)

    def start_job(self, module: str, output: str, *words: str) -> subprocess.Popen:
        """Start a job whose log bears the name of its output."""
        engine = ["--runner=PortableRunner", f"--job_endpoint=localhost:{SERVER_PORT}"]
        engine += ["--environment_type=EXTERNAL", f"--environment_config=localhost:{SPLIT_PORT}"]
        command = [sys.executable, "-m", module, "--output", f"s3://store/{output}"]
        return self._run("jobs", [*command, *engine, "--direct_num_workers=2", *words], output)

    def start_corpus(self, output: str) -> subprocess.Popen:
        return self.start_job("beam_jobs.corpus_job", output, "--input", "s3://store/dump")

    def make_corpus(self, output: str) -> None:
        assert self.start_corpus(output).wait() == 0, self.read_log(output)

    def wait_for_units(self, output: str) -> None:
        """Wait until the first pass over the dump has done some of its units."""
        eventually(
            lambda: any("/prepared/" in name for name in self.read_names(output)),
            lambda: self.read_log(output),
        )

    def read_log(self, name: str) -> str:
        return (self._logs / f"{name}.log").read_text()[-3000:]

    def list_workers(self, name: str) -> list:
        return [p for p in self.hosts[name].list_processes() if WORKER in " ".join(p.cmdline())]

    def count_started(self, name: str) -> int:
        return (self._logs / f"{name}.log").read_text().count(WORKER + "(")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A dump of six files, a vocabulary, and what FnApiRunner makes of them."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "dump").mkdir()
    for k in range(6):
        records = [review(i, reviewerID=f"{k}-{i}") for i in range(60 * k, 60 * k + 160)]
        write_lines(folder / "dump" / f"{k}.json", [*records, "{broken"])
    run_job(folder / "corpus", "--input", folder / "dump")
    return folder


@pytest.fixture(scope="module")
def expected(data):
    return digests(data / "corpus")


@pytest.fixture(scope="module")
def cluster(data, tmp_path_factory):
    hidden, logs = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("logs")
    with Network() as network:
        cluster = Cluster(network, hidden, logs)
        cluster.start()
        assert cluster.look("put", data / "dump").returncode == 0
        yield cluster


def list_results(found):
    """Return digests without corpus.json, whose paths and seconds differ; nothing else may."""
    assert not [name for name in found if name.startswith((".", "_"))], found
    return {name: digest for name, digest in found.items() if name != "corpus.json"}


def test_both_jobs_make_the_bytes_of_the_local_engine(
    cluster,
    data,
    expected,
    vocabulary,  # noqa: F811 - the fixture
    tmp_path,
):
    cluster.make_corpus("corpus")
    assert list_results(cluster.read_names("corpus")) == expected
    assert cluster.count_started("worker1") == cluster.count_started("worker2") == 1
    assert cluster.look("put", vocabulary).returncode == 0
    words = ["--corpus", "s3://store/corpus", "--vocabulary", f"s3://store/{vocabulary.name}"]
    job = cluster.start_job("beam_jobs.shards_job", "shards", *words, "--max-length", "64")
    assert job.wait() == 0, cluster.read_log("shards")
    local = ["--corpus", str(data / "corpus"), "--vocabulary", str(vocabulary)]
    shards_job.run([*local, "--max-length", "64", "--output", str(tmp_path)])
    found = {n: d for n, d in cluster.read_names("shards").items() if n.endswith(".parquet")}
    assert found
    assert found == {n: d for n, d in digests(tmp_path).items() if n.endswith(".parquet")}


def test_a_worker_that_is_killed_is_noticed_and_the_same_command_continues(cluster, expected):
    job = cluster.start_corpus("killed")
    cluster.wait_for_units("killed")
    for worker in cluster.list_workers("worker2"):
        worker.kill()
    began = time.monotonic()
    assert job.wait() == os.EX_TEMPFAIL, cluster.read_log("killed")
    print(f"a killed worker was noticed after {time.monotonic() - began:.1f} s")
    assert "error: the engine lost or did not reach a worker" in cluster.read_log("killed")
    cluster.make_corpus("killed")
    assert list_results(cluster.read_names("killed")) == expected


def test_an_s3_server_that_is_away_for_half_a_minute_costs_time_alone(cluster, expected):
    job = cluster.start_corpus("away")
    cluster.wait_for_units("away")
    cluster.hosts["s3"].cut_off()
    time.sleep(AWAY_SECONDS)
    cluster.hosts["s3"].connect_again()
    code = job.wait()
    print(f"a store that was away for {AWAY_SECONDS} s: the job ended with {code}")
    assert code in (0, os.EX_TEMPFAIL), cluster.read_log("away")
    cluster.make_corpus("away")
    assert list_results(cluster.read_names("away")) == expected


def test_two_runs_at_once_do_not_meet(cluster, expected):
    jobs = [cluster.start_corpus(name) for name in ("first", "second")]
    assert [job.wait() for job in jobs] == [0, 0]
    for name in ("first", "second"):
        assert list_results(cluster.read_names(name)) == expected
