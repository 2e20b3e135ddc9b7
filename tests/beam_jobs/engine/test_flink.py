"""The job of a command as Flink's REST API tells of it: its end, its failure and its cancellation;
and what is checked of a cluster before a job is sent.
"""

import re

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.engine import flink
from amazon_electra.beam_jobs.engine.flink import FlinkJob
from tests.beam_jobs.engine.job_servers import serve_grpc
from tests.beam_jobs.engine.rest import serve_flink

USER_ERROR = (
    "java.lang.RuntimeException: Error received from SDK harness for instruction 3: "
    "Traceback (most recent call last):\nbeam_jobs.job.errors.UserError: d.json: no column\n"
)


def test_a_job_is_followed_to_its_end(capsys):
    with serve_flink(2, jobs=["another"]) as server:
        job = FlinkJob(server.address, "nightly")
        assert not job.has_finished()  # not yet there
        server.jobs.append(
            {"jid": "2", "name": "nightly-x", "start-time": 2, "state": "INITIALIZING"}
        )
        assert not job.has_finished()
        said = f"JOB http://{server.address}/#/job/running/2/overview\n"
        assert capsys.readouterr().err == said
        server.jobs[1]["state"] = "FINISHED"
        assert job.has_finished()
        assert server.list_cancelled() == []


@pytest.mark.parametrize(
    ("state", "stacktrace", "kind", "named"),
    [
        ("FAILED", USER_ERROR, UserError, r"^d\.json"),
        ("FAILED", "x.NoResourceAvailableException: slots", TransientError, "slots"),
        ("CANCELED", "", JobFailed, "Flink"),
        ("gone", "", TransientError, r"localhost:\d+"),
    ],
)
def test_a_job_that_does_not_end_well_is_told(state, stacktrace, kind, named):
    with serve_flink(2, jobs=["nightly"]) as server:
        job = FlinkJob(server.address, "nightly")
        assert not job.has_finished()
        server.jobs[0]["state"] = state
        server.stacktrace = stacktrace
        if state == "gone":
            server.jobs.clear()
        with pytest.raises(kind, match=named):
            job.has_finished()


def test_a_job_manager_that_is_away_is_waited_for_and_told_in_the_end(monkeypatch):
    with serve_flink(2, jobs=["nightly"]) as server:
        job = FlinkJob(server.address, "nightly")
    assert not job.has_finished()
    with pytest.raises(TransientError, match=server.address):
        job.raise_failure()  # the job server has given the job up
    monkeypatch.setattr(flink, "AWAY_SECONDS", 0.0)
    with pytest.raises(TransientError, match=server.address):
        job.has_finished()


def test_a_job_is_cancelled_once_it_appears():
    with serve_flink(2, jobs=["beam-jobs-1", "beam-jobs-2"]) as server:
        FlinkJob(server.address, "beam-jobs-2").cancel(10)
        FlinkJob(server.address, "another").cancel(0)
        assert server.list_cancelled() == ["2"]
    FlinkJob(server.address, "beam-jobs-2").cancel(0)  # Flink is away


def read_name(output, *flags):
    options = PipelineOptions(list(flags))
    flink.name_job(options, output)
    return options.view_as(GoogleCloudOptions).job_name


def test_a_job_is_named_after_its_output_folder():
    first, again, other = (read_name(o) for o in ("s3://b/corpus", "s3://b/corpus/", "s3://b/c"))
    assert first != again
    assert first.rpartition("-")[0] == again.rpartition("-")[0] != other.rpartition("-")[0]
    assert re.fullmatch(r"beam-jobs-[0-9a-f]{12}-[0-9a-f]{8}", first)
    assert read_name("s3://b/corpus", "--job_name=nightly") == "nightly"


def test_older_jobs_of_the_same_folder_are_cancelled_and_no_others(capsys):
    names = [read_name("out"), read_name("elsewhere"), read_name("out"), read_name("out"), "mine"]
    with serve_flink(2, jobs=names) as server:
        server.jobs[2]["state"] = "FINISHED"
        for name in (names[0], "mine", names[3]):
            FlinkJob(server.address, name).has_finished()
        assert server.list_cancelled() == ["1"]
    assert "cancelled Flink's job 1, of a command that is gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("jar", "versions"),
    [
        ("beam-runners-flink-1.18-2.62.0.jar", ["1.18", "1.19.3"]),
        ("beam-runners-flink-1.19-job-server-2.50.0.jar", ["2.50.0", beam.__version__]),
        ("beam-runners-flink-1.19-2.62.0-SNAPSHOT.jar", ["2.62.0-SNAPSHOT", beam.__version__]),
    ],
)
def test_jars_of_other_versions_are_told(jar, versions):
    given = ["flink-dist-1.19.3.jar", jar]
    with serve_flink(2, jars=given) as server, pytest.raises(UserError) as told:
        flink.check_cluster(server.address, "flink_master")
    assert told.value.field == "flink_master"
    assert all(name in str(told.value) for name in (jar, *versions))
    assert "\n" not in str(told.value)


def test_jars_of_the_same_versions_and_of_other_packages_are_taken():
    names = ["flink-1.19-2.62.0", f"flink-1.19-job-server-{beam.__version__}", "core-java-2.50.0"]
    for name in names:
        with serve_flink(2, jars=["flink-dist-1.19.3.jar", f"beam-runners-{name}.jar"]) as server:
            flink.check_cluster(server.address, "flink_master")


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("localhost:1", TransientError),
        ("localhost", UserError),
        ("http://localhost:8099", UserError),
        ("localhost:99999", UserError),
    ],
)
def test_an_address_without_a_job_server_is_told_in_one_line(address, kind):
    with pytest.raises(kind) as raised:
        flink.check_job_server(address, "job_endpoint")
    [line] = str(raised.value).splitlines()
    assert line.startswith(f"`job_endpoint='{address}'`")


def test_a_server_of_another_kind_is_told_in_one_line(monkeypatch):
    with serve_grpc() as address, pytest.raises(UserError, match="flink_master"):
        flink.check_cluster(address, "engine.flink_master")
    monkeypatch.setattr(flink, "CONNECT_SECONDS", 1.0)
    with serve_flink(2) as server, pytest.raises(UserError, match="job_endpoint"):
        flink.check_job_server(server.address, "job_endpoint")
