"""The Beam jobs on a Flink cluster whose hosts share nothing but an S3 server: the same bytes as on
one machine, whatever is lost on the way.
"""

import os
import signal
import time
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


@pytest.mark.parametrize("lost", ["worker", "host"])
def test_what_is_lost_is_replaced_or_waited_for(cluster, expected, lost):
    """A Python worker that is killed, or all of a TaskManager's host, which comes back."""
    job = cluster.start_corpus(lost)
    wait_for_units(cluster, lost)
    began = time.time()
    if lost == "worker":
        for worker in cluster.find_processes(WORKERS[1], PYTHON_WORKER):
            worker.kill()
    else:
        cluster.lose_host(WORKERS[0])
    eventually(
        lambda: any(e["timestamp"] > began * 1000 for e in cluster.read_failures()),
        cluster.read_logs,
    )
    assert job.poll() is None, "the job ended, and Flink had noted no failure"
    if lost == "host":
        cluster.start_services(WORKERS[0])
    assert job.wait() == 0, cluster.read_log(lost)[-3000:]
    assert read_results(cluster, lost) == expected


def test_a_cancelled_job_is_cancelled_on_the_cluster(cluster):
    job = cluster.start_corpus("cancelled")
    wait_for_units(cluster, "cancelled")
    job.terminate()
    assert job.wait() == 128 + signal.SIGTERM
    eventually(lambda: cluster.list_jobs()[-1]["state"] == "CANCELED", cluster.list_jobs, 60)
    said = cluster.read_log("cancelled")
    assert f"http://jobmanager:8081/#/job/running/{cluster.list_jobs()[-1]['jid']}/" in said
    eventually(lambda: not find_python_workers(cluster), lambda: find_python_workers(cluster), 60)
    assert "cancelled/corpus.json" not in cluster.find_names("cancelled")


def find_python_workers(cluster):
    return [p for name in WORKERS for p in cluster.find_processes(name, PYTHON_WORKER)]
