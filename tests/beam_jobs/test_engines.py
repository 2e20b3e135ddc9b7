"""Other engines: Beam's portable job server gives the same bytes, Dataflow takes the graph as it is."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beam_jobs import shards_job
from tests.beam_jobs.test_shards_job import corpus, digests, job, reviews, small_units, vocabulary  # noqa: F401

DATAFLOW = [
    *["--runner=DataflowRunner", "--project=project-1", "--region=us-central1", "--no_auth", "--job_name=shards"],
    *["--temp_location=gs://bucket/temp", "--staging_location=gs://bucket/staging", "--dry_run=True"],
]


@pytest.fixture
def job_server():
    """Address of Beam's Python job server, a process of its own."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "apache_beam.runners.portability.local_job_service_main", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("localhost", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"localhost:{port}"
    finally:
        server.kill()
        server.wait()


def test_same_bytes_through_a_job_server(corpus, vocabulary, tmp_path, job_server):  # noqa: F811
    job(corpus, vocabulary, tmp_path / "local")
    portable = ["--runner=PortableRunner", f"--job_endpoint={job_server}", "--environment_type=LOOPBACK"]
    job(corpus, vocabulary, tmp_path / "portable", *portable)
    assert digests(tmp_path / "portable") == digests(tmp_path / "local") != {}


def test_dataflow_accepts_the_graph(corpus, vocabulary, tmp_path):  # noqa: F811
    pytest.importorskip("apache_beam.runners.dataflow.internal.apiclient", reason="needs apache-beam[gcp]")
    assert job(corpus, vocabulary, tmp_path, *DATAFLOW) == {"staged": "DataflowRunner", "units": 3}
    assert not list(tmp_path.glob("shard-*"))


def test_dataflow_refuses_what_it_lacks(corpus, vocabulary, tmp_path):  # noqa: F811
    without_region = [option for option in DATAFLOW if "region" not in option and "project" not in option]
    folders = ["--corpus", str(corpus), "--vocabulary", str(vocabulary), "--output", str(tmp_path)]
    with pytest.raises(Exception, match="project"):
        shards_job.run([*folders, *without_region])


@pytest.mark.parametrize(
    "options",
    [
        ["--runner=FlinkRunner", "--flink_master=localhost:1", "--flink_job_server_jar=/no/such.jar"],
        ["--runner=SparkRunner", "--spark_master_url=spark://localhost:1", "--spark_job_server_jar=/no/such.jar"],
    ],
)
def test_options_of_flink_and_spark_are_passed_through(corpus, vocabulary, tmp_path, options):  # noqa: F811
    """Their job servers are Java; that Beam looks for the jar that was named shows that it was told."""
    with pytest.raises(Exception, match=r"such\.jar|[Jj]ava"):
        job(corpus, vocabulary, Path(tmp_path), *options)
