"""The Beam jobs on a Flink cluster whose hosts share nothing but an S3 server: the same bytes as on
one machine, whatever is lost on the way.
"""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from amazon_electra.beam_jobs import shards_job
from amazon_electra.beam_jobs.core.command_line import call_job
from tests.beam_jobs.dumps import review, run_job, write_lines
from tests.flink.cluster import NEEDED, PYTHON_WORKER, WORKERS, start_cluster
from tests.patience import eventually

pytestmark = NEEDED


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
    cluster, data, expected, vocabulary, tmp_path
):
    make_corpus(cluster, "corpus")
    assert read_results(cluster, "corpus") == expected
    assert all(cluster.count_started(name) for name in WORKERS)
    cluster.put(vocabulary)
    words = ["--corpus", "s3://store/corpus", "--vocabulary", f"s3://store/{vocabulary.name}"]
    job = cluster.start_job(
        "amazon_electra.beam_jobs.shards_job", "shards", *words, "--max-length", "64"
    )
    assert job.wait() == 0, cluster.read_log("shards")[-3000:]
    local = ["--corpus", str(data / "corpus"), "--vocabulary", str(vocabulary)]
    call_job(shards_job.make_shards, [*local, "--max-length", "64", "--output", str(tmp_path)])
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


def test_a_cancelled_job_is_cancelled_on_the_cluster(cluster):
    job = cluster.start_corpus("cancelled")
    wait_for_units(cluster, "cancelled")
    began = time.time()
    job.terminate()
    assert job.wait() == 128 + signal.SIGTERM
    eventually(lambda: cluster.list_jobs()[-1]["state"] == "CANCELED", cluster.list_jobs, 60)
    seconds = time.time() - began
    said = cluster.read_log("cancelled")
    assert f"http://jobmanager:8081/#/job/running/{cluster.list_jobs()[-1]['jid']}/" in said
    eventually(lambda: not find_python_workers(cluster), lambda: find_python_workers(cluster), 60)
    print(f"\na cancelled job: Flink's was CANCELED after {seconds:.1f} s, the last Python "
          f"worker gone after {time.time() - began:.1f} s")  # fmt: skip
    assert "cancelled/corpus.json" not in cluster.find_names("cancelled")


def find_python_workers(cluster):
    return [p for name in WORKERS for p in cluster.find_processes(name, PYTHON_WORKER)]


@contextmanager
def ending(process):
    """End the process, kindly at first, after the block."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
