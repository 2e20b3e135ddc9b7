"""The same bytes from every engine, number of workers and mode; and how an engine is chosen."""

import subprocess
import sys
import time
from contextlib import nullcontext

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions, StandardOptions

from beam_jobs import corpus_job
from beam_jobs.engine import beam_options, graph_runner
from beam_jobs.job.errors import JobFailed, TransientError, UserError
from tests.beam_jobs.dumps import digests, review, run_job, text_of, write_lines
from tests.patience import eventually

NEAR = ("--near_duplicates", "0.8", "--punkt_sample_bytes", "50000")


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """Files of different sizes with copies across them, and one near-duplicate in each."""
    folder = tmp_path_factory.mktemp("dump")
    for k in range(5):
        records = [review(i, reviewerID=f"{k}-{i}") for i in range(100 * k, 100 * k + 150 + 40 * k)]
        write_lines(
            folder / f"{'edcba'[k]}.json",
            [*records, review(k, text_of(7, 9) + " Truly." * k), "{broken"],
        )
    return folder


@pytest.fixture(scope="module")
def expected(dump, tmp_path_factory):
    folder = tmp_path_factory.mktemp("in_memory")
    result = run_job(folder, "--input", dump, *NEAR)
    assert result["units"] == 5
    assert result["dropped"].keys() == {"broken JSON", "duplicate", "near duplicate"}
    return digests(folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_bytes_from_processes(dump, expected, tmp_path, workers):
    arguments = [
        "--direct_running_mode=multi_processing",
        f"--direct_num_workers={workers}",
        "--output",
        str(tmp_path),
    ]
    corpus_job.run(["--input", str(dump), *NEAR, *arguments])
    assert digests(tmp_path) == expected


def test_the_same_bytes_from_a_job_server(dump, expected, tmp_path):
    port_file = tmp_path / "port"
    module = "apache_beam.runners.portability.local_job_service_main"
    server = subprocess.Popen(
        [sys.executable, "-m", module, "--port", "0", "--port_file", str(port_file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = eventually(lambda: port_file.exists() and port_file.read_text())
        graph_runner = ["--runner=PortableRunner", f"--job_endpoint=localhost:{port}"]
        graph_runner += ["--environment_type=LOOPBACK", "--output", str(tmp_path / "corpus")]
        corpus_job.run(["--input", str(dump), *NEAR, *graph_runner])
    finally:
        server.terminate()
        server.wait()
    assert digests(tmp_path / "corpus") == expected


def test_direct_runner_is_resolved_and_said_so(capsys):
    found = beam_options.resolve_beam_options(
        ["--runner=DirectRunner", "--direct_num_workers=3"], 0
    )
    assert found.view_as(StandardOptions).runner == "FnApiRunner"
    assert beam_options.describe_engine(found) == "FnApiRunner, multi_processing, 3 worker(s)"
    assert "DirectRunner is resolved to FnApiRunner" in capsys.readouterr().err


@pytest.mark.parametrize(("input_bytes", "small"), [(1_000, True), (1_000_000_000, False)])
def test_small_inputs_stay_in_one_process(monkeypatch, input_bytes, small):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1}, raising=False)
    direct = beam_options.resolve_beam_options([], input_bytes).view_as(DirectOptions)
    assert (direct.direct_running_mode == "in_memory") is small
    assert direct.direct_num_workers == (1 if small else 2)


@pytest.mark.parametrize(
    ("error", "ends"), [(ConnectionError("the store is away"), False), (KeyError("read"), True)]
)
def test_a_store_that_is_away_when_progress_is_looked_up_ends_no_job(error, ends):
    looked = []

    def look():
        looked.append(1)
        raise error

    def build(pipeline):
        _ = pipeline | beam.Create([2 * graph_runner.POLL_SECONDS]) | beam.Map(time.sleep)

    options = beam_options.resolve_beam_options(["--direct_running_mode=in_memory"], 0)
    with pytest.raises(KeyError) if ends else nullcontext():
        graph_runner.run_beam_graph(options, build, "", look)
    assert looked


def test_unknown_options_are_refused_but_passed_to_job_servers():
    with pytest.raises(UserError, match="--ouput"):
        beam_options.resolve_beam_options(["--ouput=x"], 0)
    flink = beam_options.resolve_beam_options(
        ["--runner=FlinkRunner", "--flink_job_server_jar=x.jar", "--parallelism=3"], 0
    )
    assert flink.view_as(StandardOptions).runner == "FlinkRunner"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "Traceback …\nbeam_jobs.command.UserError: d.json: no column [while running 'Cut']",
            UserError,
            "d.json: no",
        ),
        (
            "Traceback …\nx.errors.TransientError: d.gz cannot be read to its end: [Errno 5]",
            TransientError,
            "d.gz cannot be",
        ),
        (
            "Traceback …\nbotocore.exceptions.EndpointConnectionError: Could not connect",
            TransientError,
            "Could not connect",
        ),
        (
            "Traceback …\nConnectionResetError: [Errno 104] reset",
            TransientError,
            "reset; what is done is kept",
        ),
        (
            "Traceback …\ngcsfs.retry.HttpError: Backend Error, 503 [while running 'Cut']",
            TransientError,
            "Backend Error, 503",
        ),
        (
            "Traceback …\nrequests.exceptions.ProxyError:  [while running 'Cut']",
            TransientError,
            "ProxyError: ",
        ),
        ("Traceback …\nOSError: [Errno 28] No space left on device", JobFailed, "make room"),
    ],
)
def test_what_a_worker_met_is_told_as_what_it_is(text, kind, message):
    found = graph_runner.translate_error(RuntimeError(text))
    assert type(found) is kind
    assert message in str(found)
    assert graph_runner.translate_error(RuntimeError("KeyError: 'stars'")) is None
