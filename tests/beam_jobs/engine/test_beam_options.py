"""How an engine is chosen, and what is refused before a graph is made."""

import pytest
from apache_beam.options.pipeline_options import DirectOptions, StandardOptions

from amazon_electra.beam_jobs.engine import beam_options
from tests.beam_jobs.engine.job_servers import serve_grpc
from tests.refusals import refuses


def test_direct_runner_is_resolved():
    found = beam_options.resolve_beam_options(
        ["--runner=DirectRunner", "--direct_num_workers=3"], 0
    )
    assert found.view_as(StandardOptions).runner == "FnApiRunner"
    direct = found.view_as(DirectOptions)
    assert (direct.direct_running_mode, direct.direct_num_workers) == ("multi_processing", 3)


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
