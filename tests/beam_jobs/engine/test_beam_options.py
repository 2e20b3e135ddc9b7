"""How an engine is chosen, and what is refused before a graph is made."""

import pytest
from apache_beam.options.pipeline_options import DirectOptions, StandardOptions

from amazon_electra.beam_jobs.core.errors import TransientError
from amazon_electra.beam_jobs.engine import beam_options
from tests.beam_jobs.dumps import refuses
from tests.beam_jobs.engine.job_servers import serve_grpc


def test_direct_runner_is_resolved():
    found = beam_options.resolve_beam_options(
        ["--runner=DirectRunner", "--direct_num_workers=3"], 0
    )
    assert found.view_as(StandardOptions).runner == "FnApiRunner"
    assert beam_options.describe_engine(found) == "FnApiRunner, multi_processing, 3 worker(s)"


@pytest.mark.parametrize(("input_bytes", "small"), [(1_000, True), (1_000_000_000, False)])
def test_small_inputs_stay_in_one_process(monkeypatch, input_bytes, small):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1}, raising=False)
    direct = beam_options.resolve_beam_options([], input_bytes).view_as(DirectOptions)
    assert (direct.direct_running_mode == "in_memory") is small
    assert direct.direct_num_workers == (1 if small else 2)


def test_unknown_options_are_refused_but_passed_to_job_servers():
    for words in (["--ouput=x"], ["--ouput", "x"], ["--direct_num_worker=2"]):
        with refuses(words[0].partition("=")[0]):
            beam_options.resolve_beam_options(words, 0)
    with serve_grpc() as address:
        words = ["--runner=FlinkRunner", f"--job_endpoint={address}", "--unknown_here=3"]
        found = beam_options.resolve_beam_options(words, 0)
    assert found.view_as(StandardOptions).runner == "FlinkRunner"


def test_a_job_server_or_a_cluster_that_does_not_fit_is_told_before_a_job_is_sent():
    with refuses("job_endpoint", "localhost:1", kind=TransientError):
        beam_options.resolve_beam_options(
            ["--runner=PortableRunner", "--job_endpoint=localhost:1"], 0
        )
    with serve_grpc() as address:
        words = ["--runner=PortableRunner", f"--job_endpoint={address}"]
        beam_options.resolve_beam_options([*words, "--flink_master=localhost:1"], 0)  # it is away


def test_a_runner_that_starts_a_server_in_java_needs_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with refuses("Java 17"):
        beam_options.resolve_beam_options(["--runner=FlinkRunner"], 0)
