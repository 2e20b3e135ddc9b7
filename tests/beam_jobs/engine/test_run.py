"""The same bytes from local processes and a job server; the end of a job whose engine goes away."""

import os
import time
from contextlib import nullcontext

import apache_beam as beam
import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from amazon_electra.beam_jobs.core.errors import TransientError
from amazon_electra.beam_jobs.engine import beam_options, run
from tests.beam_jobs.dumps import digests, review, run_job, text_of, write_lines
from tests.beam_jobs.engine.job_servers import start_job_server
from tests.beam_jobs.engine.rest import serve_flink
from tests.beam_jobs.engine.test_flink import USER_ERROR
from tests.refusals import refuses

SETTINGS = ("--near_duplicates", "0.8", "--split_by", "time")
"""With what takes passes of its own over the reviews."""


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """Files of different sizes with copies across them, and one near-duplicate in each."""
    folder = tmp_path_factory.mktemp("dump")
    for k in range(5):
        numbers = range(100 * k, 100 * k + 150 + 40 * k)
        records = [review(i, reviewerID=f"{k}-{i}", unixReviewTime=86_400 * i) for i in numbers]
        write_lines(
            folder / f"{'edcba'[k]}.json",
            [*records, review(k, text_of(7, 9) + " Truly." * k), "{broken"],
        )
    return folder


@pytest.fixture(scope="module")
def expected(dump, tmp_path_factory):
    folder = tmp_path_factory.mktemp("in_memory")
    result = run_job(folder, "--input", dump, *SETTINGS)
    assert result["units"] == 5
    assert result["dropped"].keys() == {"broken JSON", "duplicate", "near duplicate"}
    return digests(folder)


def test_the_same_bytes_from_two_processes(dump, expected, tmp_path):
    run_job(tmp_path, "--input", dump, *SETTINGS, mode="multi_processing")
    assert digests(tmp_path) == expected


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with start_job_server(tmp_path_factory.mktemp("server")) as (_, port):
        yield port


def run_waiting_graph(folder, server, poll=lambda: None, *flags):
    """Run a graph that ends once `end` is there; `poll` is called once it has begun."""
    begun, end = folder / "begun", folder / "end"

    def wait(paths):
        open(paths[0], "w").close()
        while not os.path.exists(paths[1]):
            time.sleep(0.05)

    def build(pipeline):
        _ = pipeline | beam.Create([(str(begun), str(end))]) | beam.Map(wait)

    words = ["--runner=PortableRunner", f"--job_endpoint=localhost:{server}"]
    options = beam_options.resolve_beam_options([*words, "--environment_type=LOOPBACK", *flags], 0)
    try:
        run.run_beam_graph(options, build, lambda: poll() if begun.exists() else None)
    finally:
        end.touch()


def read_states(server):
    with grpc.insecure_channel(f"localhost:{server}") as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = service.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
        return [beam_job_api_pb2.JobState.Enum.Name(job.state) for job in jobs]


def test_a_cancelled_job_is_cancelled_on_the_engine(tmp_path, server):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_waiting_graph(tmp_path, server, interrupt)
    assert read_states(server)[-1] in {"CANCELLING", "CANCELLED"}


@pytest.mark.parametrize(
    ("state", "end"), [("FINISHED", nullcontext()), ("FAILED", refuses("d.json"))]
)
def test_the_end_of_a_job_is_what_flink_says(tmp_path, server, state, end):
    """Though the job server, whose host may be gone, says nothing."""
    with serve_flink(jobs=[f"end-{state}"]) as flink:
        flink.stacktrace = USER_ERROR
        named = (f"--flink_master={flink.address}", f"--job_name=end-{state}")
        with end:
            run_waiting_graph(tmp_path, server, lambda: flink.jobs[0].update(state=state), *named)
        assert flink.list_cancelled() == ["1"] * (state == "FAILED")


def test_a_killed_job_server_is_told_at_once(tmp_path):
    with (
        start_job_server(tmp_path / "server") as (process, port),
        refuses("job server", kind=TransientError),
    ):
        run_waiting_graph(tmp_path, port, process.kill)


def test_a_runner_that_beam_does_not_know_is_named():
    options = beam_options.resolve_beam_options(["--runner=Flnik"], 0)
    with refuses("runner", "Flnik"):
        run.run_beam_graph(options, lambda pipeline: pipeline)


@pytest.mark.parametrize(
    ("error", "ends"), [(ConnectionError("the store is away"), False), (KeyError("read"), True)]
)
def test_a_store_that_is_away_when_progress_is_looked_up_ends_no_job(error, ends):
    looked = []

    def look():
        looked.append(1)
        raise error

    def build(pipeline):
        _ = pipeline | beam.Create([2 * run.POLL_SECONDS]) | beam.Map(time.sleep)

    options = beam_options.resolve_beam_options(["--direct_running_mode=in_memory"], 0)
    with pytest.raises(KeyError) if ends else nullcontext():
        run.run_beam_graph(options, build, look)
    assert looked
