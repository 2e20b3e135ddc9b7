"""The Beam jobs on a Flink cluster whose hosts share nothing but an S3 server: the same bytes as on
one machine, whatever is lost on the way.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from beam_jobs import shards_job
from beam_jobs.engine import flink_versions
from beam_jobs.job.errors import UserError
from tests.beam_jobs.dumps import review, run_job, write_lines
from tests.beam_jobs.test_shards_job import vocabulary  # noqa: F401 - a fixture
from tests.flink.cluster import NEEDED, PYTHON_WORKER, WORKERS, start_cluster
from tests.patience import eventually

pytestmark = NEEDED
AWAY_SECONDS = 30
PROGRAM = [sys.executable, "-m", "flows.cli.main"]
PROGRESS = re.compile(r"corpus.* \d+ of \d+ units")
"""What a run says of how far its corpus stage is."""
WORKER_SECONDS = 420
"""A job whose worker cannot start is over long before, on a loaded machine too."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A dump of six files, and what FnApiRunner makes of it."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "dump").mkdir()
    for k in range(6):
        records = [review(i, reviewerID=f"{k}-{i}") for i in range(60 * k, 60 * k + 160)]
        write_lines(folder / "dump" / f"{k}.json", [*records, "{broken"])
    run_job(folder / "corpus", "--input", folder / "dump")
    return folder


@pytest.fixture(scope="module")
def expected(data):
    """Contents by name; a reject names the file that it is from."""
    made = {p.relative_to(data / "corpus"): p.read_bytes() for p in data.rglob("corpus/**/*.*")}
    here = str(data / "dump").encode()
    return {
        str(n): b.replace(here, b"s3://store/dump") for n, b in made.items() if n.stem != "corpus"
    }


@pytest.fixture(scope="module")
def cluster(data, tmp_path_factory):
    logs = Path(os.environ.get("FLINK_LOGS") or tmp_path_factory.mktemp("logs"))
    with start_cluster(tmp_path_factory.getbasetemp(), logs) as cluster:
        cluster.put(data / "dump")
        yield cluster


def read_results(cluster, folder):
    """Return contents without corpus.json, whose paths and seconds differ; nothing else may."""
    found = cluster.read_files(folder)
    assert not [name for name in found if name.startswith((".", "_"))], found.keys()
    return {name: content for name, content in found.items() if name != "corpus.json"}


def make_corpus(cluster, output):
    assert cluster.start_corpus(output).wait() == 0, cluster.read_log(output)[-3000:]


def wait_for_units(cluster, *outputs):
    """Wait until the first pass over the dump has done some of its units, of one of the jobs."""
    eventually(
        lambda: any("/prepared/" in n for output in outputs for n in cluster.find_names(output)),
        lambda: cluster.read_logs(),
    )


@pytest.mark.smoke
def test_both_jobs_make_the_bytes_of_the_local_engine(
    cluster,
    data,
    expected,
    vocabulary,  # noqa: F811 - the fixture
    tmp_path,
):
    make_corpus(cluster, "corpus")
    assert read_results(cluster, "corpus") == expected
    assert all(cluster.count_started(name) for name in WORKERS)
    cluster.put(vocabulary)
    words = ["--corpus", "s3://store/corpus", "--vocabulary", f"s3://store/{vocabulary.name}"]
    job = cluster.start_job("beam_jobs.shards_job", "shards", *words, "--max-length", "64")
    assert job.wait() == 0, cluster.read_log("shards")[-3000:]
    local = ["--corpus", str(data / "corpus"), "--vocabulary", str(vocabulary)]
    shards_job.run([*local, "--max-length", "64", "--output", str(tmp_path)])
    found = {n: b for n, b in read_results(cluster, "shards").items() if n.endswith(".parquet")}
    assert found
    assert found == {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")}


def wait_for_failure(cluster, job, began):
    """Return the seconds until Flink noted a failure, and what it said."""
    entry = eventually(
        lambda: next(
            (e for e in cluster.read_failures() if e["timestamp"] > began * 1000),
            job.poll() is not None,
        )
    )
    assert isinstance(entry, dict), "the job ended, and Flink had noted no failure"
    return entry["timestamp"] / 1000 - began, entry["stacktrace"].splitlines()[0]


def test_a_python_worker_that_is_killed_is_replaced_by_flink(cluster, expected):
    job = cluster.start_corpus("killed")
    wait_for_units(cluster, "killed")
    began = time.time()
    for worker in cluster.find_processes(WORKERS[1], PYTHON_WORKER):
        worker.kill()
    seconds, said = wait_for_failure(cluster, job, began)
    assert job.wait() == 0, cluster.read_log("killed")[-3000:]
    print(f"\na killed Python worker was noticed after {seconds:.1f} s ({said}), job done after "
          f"{time.time() - began:.1f} s")  # fmt: skip
    assert read_results(cluster, "killed") == expected


def test_a_task_manager_that_is_killed_is_waited_for(cluster, expected):
    job = cluster.start_corpus("lost")
    wait_for_units(cluster, "lost")
    began = time.time()
    cluster.lose_host(WORKERS[0])
    seconds, said = wait_for_failure(cluster, job, began)
    cluster.start_services(WORKERS[0])
    assert job.wait() == 0, cluster.read_log("lost")[-3000:]
    print(f"\na lost TaskManager was noticed after {seconds:.1f} s ({said}), job done after "
          f"{time.time() - began:.1f} s")  # fmt: skip
    assert read_results(cluster, "lost") == expected


def test_the_job_of_a_command_that_is_gone_is_cancelled_by_the_next_one(cluster, expected):
    with ending(cluster.start_corpus("gone")) as first:
        wait_for_units(cluster, "gone")
        first.kill()
    stopped = find_python_workers(cluster)
    for worker in stopped:
        worker.suspend()  # or the job is done before the next one has come to Flink
    left = cluster.list_jobs()[-1]
    assert left["state"] == "RUNNING"
    began = time.time()
    second = cluster.start_corpus("gone")
    eventually(lambda: read_state(cluster, left) == "CANCELED", cluster.list_jobs)
    seconds = time.time() - began
    assert second.wait() == 0, cluster.read_log("gone")[-3000:]
    print(f"\na killed command's job was CANCELED {seconds:.1f} s after the next one was started, "
          f"which was done after {time.time() - began:.1f} s")  # fmt: skip
    assert read_results(cluster, "gone") == expected
    for worker in stopped:
        with suppress(psutil.NoSuchProcess):
            worker.kill()


def read_state(cluster, job):
    return next(one["state"] for one in cluster.list_jobs() if one["jid"] == job["jid"])


def test_two_runs_at_once_wait_for_an_s3_server_that_is_away_for_half_a_minute(cluster, expected):
    jobs = {name: cluster.start_corpus(name) for name in ("first", "second")}
    wait_for_units(cluster, *jobs)
    began = time.time()
    cluster.hosts["s3"].cut_off()
    time.sleep(AWAY_SECONDS)
    cluster.hosts["s3"].connect_again()
    codes = {name: job.wait() for name, job in jobs.items()}
    print(f"\na store that was away for {AWAY_SECONDS} s: two jobs ended with {codes} after "
          f"{time.time() - began:.1f} s")  # fmt: skip
    for name, code in codes.items():
        assert code == 0, cluster.read_log(name)[-3000:]
        assert read_results(cluster, name) == expected


@pytest.fixture
def bare_programs():
    """A folder whose `python` has no packages; hosts see it, unlike those that pytest makes."""
    bare = Path(sys.base_prefix) / "bin" / "python3"
    assert subprocess.run([bare, "-c", "import apache_beam"], capture_output=True).returncode == 1
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "python").symlink_to(bare)
        yield Path(folder)


def test_a_python_worker_that_cannot_start_is_told(cluster, expected, bare_programs):
    cluster.restart_pool(WORKERS[0], bare_programs)
    job, began = cluster.start_corpus("untold"), time.time()
    assert job.wait(WORKER_SECONDS) == os.EX_TEMPFAIL, cluster.read_log("untold")[-3000:]
    print(f"\na Python worker that cannot start was told after {time.time() - began:.1f} s")
    [line] = [line for line in cluster.read_log("untold").splitlines() if "error: " in line]
    where = f"localhost:50000 beside the TaskManager on {cluster.hosts[WORKERS[0]].address}"
    assert f"no Python worker starts at {where}" in line
    eventually(lambda: cluster.list_jobs()[-1]["state"] == "CANCELED", cluster.list_jobs, 60)
    cluster.restart_pool(WORKERS[0])
    make_corpus(cluster, "untold")
    assert read_results(cluster, "untold") == expected


def find_python_workers(cluster):
    return [p for name in WORKERS for p in cluster.find_processes(name, PYTHON_WORKER)]


@pytest.fixture(scope="module")
def sample(cluster, tmp_path_factory):
    """A dump here and, as words of a run, in the store."""
    folder = tmp_path_factory.mktemp("dumps") / "sample"
    folder.mkdir()
    words = ["sample", "--reviews", "600", "--output", str(folder / "600.json.gz")]
    subprocess.run([*PROGRAM, *words], check=True)
    cluster.put(folder)
    return folder, ("--dump", "s3://store/sample/*.gz", "--store")


@pytest.fixture(scope="module")
def local_run(sample, tmp_path_factory):
    """Contents of corpus and shards by name, as a run on this machine makes them."""
    folder = tmp_path_factory.mktemp("local")
    words = ["run", "--dump", str(sample[0] / "*.gz"), "--store", str(folder / "runs")]
    environment = os.environ | {"AMAZON_ELECTRA_STATE": str(folder / "state")}
    with ending(subprocess.Popen([*PROGRAM, *words], env=environment)):
        eventually(lambda: list(folder.glob("runs/shards/*/manifest.json")))
    found = [p for s in ("corpus", "shards") for p in folder.glob(f"runs/{s}/*/*.parquet")]
    assert found
    return {str(p.relative_to(folder / "runs")): p.read_bytes() for p in found}


def wait_for_shards(cluster, store, run, log):
    """Return the contents of corpus and shards in a store by name once both are complete."""
    manifest = f"store/{store}/shards/*/manifest.json"
    eventually(
        lambda: cluster.store.glob(manifest) or run.poll() is not None,
        lambda: cluster.read_log(log)[-3000:],
    )
    assert cluster.store.glob(manifest), cluster.read_log(log)[-3000:]
    return cluster.read_files(store, ".parquet")


def test_the_flow_is_cancelled_on_the_cluster_and_makes_corpus_and_shards_there(
    cluster, sample, local_run
):
    command = [*sample[1], "s3://store/runs"]
    with ending(cluster.start_run(*command, log="cancelled")) as run:
        wait_for_units(cluster, "runs")
        eventually(lambda: PROGRESS.search(cluster.read_log("cancelled")))
        began = time.time()
        run.terminate()
        run.wait()
        eventually(lambda: cluster.list_jobs()[-1]["state"] == "CANCELED", cluster.list_jobs, 60)
        seconds = time.time() - began
    said = cluster.read_log("cancelled")
    assert f"http://jobmanager:8081/#/job/running/{cluster.list_jobs()[-1]['jid']}/" in said
    eventually(lambda: not find_python_workers(cluster), lambda: find_python_workers(cluster), 60)
    print(f"\na cancelled run: Flink's job was CANCELED after {seconds:.1f} s, the last Python "
          f"worker gone after {time.time() - began:.1f} s")  # fmt: skip
    assert {p.pid for p in cluster.hosts["job"].list_processes()} <= {os.getpid()}
    assert not cluster.store.glob("store/runs/corpus/*/manifest.json")
    with ending(cluster.start_run(*command)) as run:
        assert wait_for_shards(cluster, "runs", run, "run") == local_run


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("jobserver", "the engine's job server went away: "),
        ("jobmanager", "the engine's JobManager went away: "),
    ],
)
def test_a_lost_server_of_the_engine_is_waited_for_by_prefect(
    cluster, sample, local_run, host, said
):
    store = f"lost-{host}"
    with ending(cluster.start_run(*sample[1], f"s3://store/{store}", log=store)) as run:
        wait_for_units(cluster, store)
        cluster.lose_host(host)
        began = time.time()
        cluster.start_services(host)
        told = re.compile(rf"✗ corpus .*{said}.*; a second attempt may pass;")
        eventually(lambda: told.search(cluster.read_log(store)), lambda: cluster.read_log(store))
        seconds = time.time() - began
        assert wait_for_shards(cluster, store, run, store) == local_run
    print(f"\na lost {host} was told after {seconds:.1f} s, corpus and shards done after "
          f"{time.time() - began:.1f} s: {told.search(cluster.read_log(store))[0]}")  # fmt: skip


def test_the_versions_of_the_cluster_are_known_before_a_job_is_sent(cluster, monkeypatch):
    assert list(flink_versions.find_beam_jars(cluster.rest)) == [
        ("beam-runners-flink-1.19-2.62.0.jar", "1.19", "2.62.0")
    ]
    flink_versions.check_flink_versions(cluster.rest, "engine.flink_master")
    monkeypatch.setattr(flink_versions, "TRIED_BEAM", "2.61.0")
    with pytest.raises(UserError, match=r"is of Beam 2\.62\.0, and the jobs have Beam "):
        flink_versions.check_flink_versions(cluster.rest, "engine.flink_master")


@contextmanager
def ending(process):
    """End the process, kindly at first, after the block."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
