"""The job of a command in Flink's REST API: its end, its failure and its cancellation."""

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.engine import flink
from amazon_electra.beam_jobs.engine.flink import FlinkJob
from tests.beam_jobs.engine.rest import serve_flink
from tests.refusals import refuses

USER_ERROR = (
    "java.lang.RuntimeException: Error received from SDK harness for instruction 3: "
    "Traceback (most recent call last):\nbeam_jobs.job.errors.UserError: d.json: no column\n"
)


def test_a_job_is_followed_to_its_end(capsys):
    with serve_flink(jobs=["another"]) as server:
        job = FlinkJob(server.address, "nightly")
        assert not job.has_finished()  # not yet there
        server.jobs.append({"jid": "2", "name": "nightly-x", "state": "INITIALIZING"})
        assert not job.has_finished()
        said = f"JOB {server.address}/#/job/running/2/overview\n"
        assert capsys.readouterr().err == said
        server.jobs[1]["state"] = "FINISHED"
        assert job.has_finished()
        assert server.list_cancelled() == []


@pytest.mark.parametrize(
    ("state", "stacktrace", "kind", "named"),
    [
        ("FAILED", USER_ERROR, UserError, "d.json"),
        ("FAILED", "x.NoResourceAvailableException: slots", TransientError, "slots"),
        ("CANCELED", "", JobFailed, "Flink"),
        ("gone", "", TransientError, "localhost"),
    ],
)
def test_a_job_that_does_not_end_well_is_told(state, stacktrace, kind, named):
    with serve_flink(jobs=["nightly"]) as server:
        job = FlinkJob(server.address, "nightly")
        assert not job.has_finished()
        server.jobs[0]["state"] = state
        server.stacktrace = stacktrace
        if state == "gone":
            server.jobs.clear()
        with refuses(named, kind=kind):
            job.has_finished()


def test_a_job_manager_that_is_away_is_waited_for():
    with serve_flink(jobs=["nightly"]) as server:
        job = FlinkJob(server.address, "nightly")
    assert not job.has_finished()
    with refuses(server.address, kind=TransientError):
        job.raise_failure()  # the job server has given the job up


def test_a_job_is_cancelled_once_it_appears():
    with serve_flink(jobs=["beam-jobs-1", "beam-jobs-2"]) as server:
        FlinkJob(server.address, "beam-jobs-2").cancel(10)
        FlinkJob(server.address, "another").cancel(0)
        assert server.list_cancelled() == ["2"]
    FlinkJob(server.address, "beam-jobs-2").cancel(0)  # Flink is away


@pytest.mark.parametrize("address", ["localhost:1", "localhost", "http://localhost:8099"])
def test_an_address_without_a_job_server_is_told(monkeypatch, address):
    monkeypatch.setattr(flink, "CONNECT_SECONDS", 0.5)
    with refuses("job_endpoint", address, kind=TransientError):
        flink.check_job_server(address, "job_endpoint")


def test_a_server_of_another_kind_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(flink, "CONNECT_SECONDS", 0.5)
    with serve_flink() as server, refuses("job_endpoint", kind=TransientError):
        flink.check_job_server(server.address.removeprefix("http://"), "job_endpoint")
