"""Jobs on a job server with Python workers of their own: the same bytes, and mistakes in a line."""

import dataclasses
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from beam_jobs.engine import beam_options, flink_jobs, graph_runner, job_server, worker_check
from beam_jobs.job.errors import JobFailed, TransientError, UserError
from tests.beam_jobs.dumps import digests, review, run_job, write_lines
from tests.beam_jobs.engine.job_servers import (
    ROOT,
    list_children,
    start_job_server,
    start_pool,
)
from tests.beam_jobs.engine.rest import serve_flink
from tests.patience import eventually
from tests.s3_server import serve_s3


def find_free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    for k in range(4):
        write_lines(
            folder / f"{k}.json", [review(i, reviewerID=f"{k}-{i}") for i in range(50 * k, 300)]
        )
    return folder


@pytest.fixture(scope="module")
def expected(dump, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    run_job(folder, "--input", dump)
    return digests(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with start_job_server(tmp_path_factory.mktemp("server")) as (_, port):
        yield port


@pytest.fixture
def pool(tmp_path):
    port = find_free_port()
    with start_pool(tmp_path / "pool", port) as process:
        yield process, port


def start_job(dump, output, server, pool, *more):
    command = [sys.executable, "-m", "beam_jobs.corpus_job", "--input", dump, "--output", output]
    command += ["--runner=PortableRunner", f"--job_endpoint=localhost:{server}"]
    command += ["--environment_type=EXTERNAL", f"--environment_config=localhost:{pool}", *more]
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"AMAZON_ELECTRA_PROGRESS": "json"},
    )


def finish_job(job):
    """Return the exit code and the last line of a job."""
    _, err = job.communicate(timeout=300)
    return job.returncode, err.strip().splitlines()[-1]


def list_hidden(folder):
    return [p.name for p in folder.iterdir() if p.name.startswith((".", "_"))]


def test_the_same_bytes_from_workers_of_a_pool(dump, expected, tmp_path, server, pool):
    assert finish_job(start_job(dump, tmp_path / "out", server, pool[1]))[0] == 0
    assert digests(tmp_path / "out") == expected
    assert list_hidden(tmp_path / "out") == []


def suspend_worker(output, pool):
    """Suspend the only worker, once it has prepared reviews; return its process."""
    eventually(lambda: list(output.glob("_work-*/prepared/*.json")))
    [worker] = list_children(pool)
    worker.suspend()
    return worker


def test_a_killed_worker_is_noticed_and_the_same_command_continues(
    dump, expected, tmp_path, server, pool
):
    """While its step has outputs: Beam's job server waits for ever for a later step's worker."""
    for attempt in range(10):
        output = tmp_path / f"out-{attempt}"
        job = start_job(dump, output, server, pool[1])
        worker = suspend_worker(output, pool[0])
        if not (list(output.glob("_work-*/matches")) or list(output.glob("*.json"))):
            break
        worker.resume()  # this machine was slow to look
        assert finish_job(job)[0] == 0
    else:
        pytest.fail("every look at the job came too late")
    worker.kill()
    killed = time.monotonic()
    code, line = finish_job(job)
    print(f"a killed worker was noticed after {time.monotonic() - killed:.1f} s")
    assert code == os.EX_TEMPFAIL
    assert line.startswith("error: the engine lost or did not reach a worker: ")
    assert finish_job(start_job(dump, output, server, pool[1]))[0] == 0
    assert digests(output) == expected
    assert list_hidden(output) == []


def test_a_job_may_take_longer_than_the_job_server_to_answer(dump, tmp_path, server, pool):
    words = ["--runner=PortableRunner", f"--job_endpoint=localhost:{server}"]
    beams_own = ["--job_server_timeout=1"]
    code, line = finish_job(start_job(dump, tmp_path / "out", server, pool[1], *beams_own))
    assert code == os.EX_TEMPFAIL, "Beam's option no longer ends a job: leave it as it is"
    assert "Deadline Exceeded" in line
    with_hyphens = ["--job-server-timeout", "2"]
    for more, seconds in [([], beam_options.JOB_SECONDS), (beams_own, 1), (with_hyphens, 2)]:
        found = beam_options.resolve_beam_options([*words, *more], 0)
        assert found.view_as(PortableOptions).job_server_timeout == seconds


def test_a_cancelled_job_is_cancelled_on_the_engine(dump, tmp_path, server, pool):
    output = tmp_path / "out"
    job = start_job(dump, output, server, pool[1])
    eventually(lambda: list(output.glob("_work-*/cuts/*.json")))
    job.send_signal(signal.SIGTERM)
    assert finish_job(job)[0] == 128 + signal.SIGTERM
    assert read_states(server)[-1] in {"CANCELLING", "CANCELLED"}
    assert not (output / "corpus.json").exists()


def test_a_killed_job_server_is_told_at_once(dump, tmp_path, pool):
    output = tmp_path / "out"
    with start_job_server(tmp_path / "server") as (process, port):
        job = start_job(dump, output, port, pool[1])
        eventually(lambda: list(output.glob("_work-*/prepared/*.json")))
        process.kill()
        code, line = finish_job(job)
    assert code == os.EX_TEMPFAIL
    assert line.startswith("error: the engine's job server went away: ")


def test_a_job_server_that_stands_still_or_forgets_the_job_is_told(tmp_path, monkeypatch):
    """As one does whose host is gone: its connections stay open, and Beam waits."""
    monkeypatch.setattr(job_server, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(job_server, "AWAY_SECONDS", 1.0)
    monkeypatch.setattr(job_server, "CONNECT_SECONDS", 1.0)
    ended, told = threading.Event(), []
    with start_job_server(tmp_path) as (process, port):
        options = PipelineOptions([f"--job_endpoint=localhost:{port}", "--job_name=mine"])
        watch = threading.Thread(
            target=job_server.watch_job_server, args=(options, ended, told.append)
        )
        watch.start()
        eventually(lambda: job_server.list_job_names(f"localhost:{port}") == set())
        process.send_signal(signal.SIGSTOP)
        watch.join()
    [error] = told
    assert isinstance(error, TransientError)
    assert re.search(r"job server at localhost:\d+ gives no answer for \d s; what is ", str(error))
    names = iter([set(), {"mine", "another"}, None, {"another"}])
    monkeypatch.setattr(job_server, "list_job_names", lambda address: next(names))
    job_server.watch_job_server(options, ended, told.append)
    assert "has forgotten the job; what is done is kept" in str(told[1])
    ended.set()
    job_server.watch_job_server(options, ended, told.append)
    job_server.watch_job_server(PipelineOptions([]), threading.Event(), told.append)
    assert len(told) == 2


def test_a_job_of_a_server_that_does_not_answer_is_cancelled_on_flink_in_time():
    never = threading.Event()
    result = SimpleNamespace(cancel=never.wait)
    with serve_flink(slots=2, jobs=["beam-jobs-1"]) as flink:
        options = PipelineOptions(["--flink_master", flink.address, "--job_name=beam-jobs-1"])
        graph_runner.cancel_job(options, result, time.monotonic() + 1)
        assert flink.asked[-1] == "PATCH /jobs/1?mode=cancel"
    never.set()


def read_states(server):
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(f"localhost:{server}") as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = service.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
        return [beam_job_api_pb2.JobState.Enum.Name(job.state) for job in jobs]


def test_workers_with_other_code_are_told_before_they_give_other_bytes(dump, tmp_path, server):
    code, port = tmp_path / "code", find_free_port()
    shutil.copytree(ROOT / "beam_jobs", code / "beam_jobs")
    with open(code / "beam_jobs" / "text" / "cleaning.py", "a") as module:
        module.write("# another version\n")
    with start_pool(tmp_path / "pool", port, code):
        code, line = finish_job(start_job(dump, tmp_path / "out", server, port))
    assert code == 2
    assert line.startswith("error: the engine's Python workers have beam_jobs ")
    assert line.endswith("install there what is installed here")


def test_a_store_that_goes_away_does_not_hide_why_a_job_failed(tmp_path):
    store = tmp_path / "store"
    store.mkdir()

    def fail_without_store():
        with worker_check.leave_probe(str(store)):
            shutil.rmtree(store)
            store.touch()  # now the probe cannot be removed
            raise KeyError("the cause")

    with pytest.raises(KeyError, match="the cause"):
        fail_without_store()


@pytest.mark.parametrize("part", ["python", "apache_beam"])
def test_workers_with_other_versions_are_told(part, tmp_path):
    """The step that compares them, on a worker that differs from the job in one."""
    job = dataclasses.replace(worker_check.read_versions(), **{part: "2.62"})
    with worker_check.leave_probe(str(tmp_path)) as probe:
        worker_check.check_worker(worker_check.read_versions(), probe)
        with pytest.raises(UserError, match=rf"^[^\n]* have {part} \S+ instead of 2\.62; install"):
            worker_check.check_worker(job, probe)


def test_workers_that_may_not_read_the_store_say_so(dump, tmp_path, server, monkeypatch):
    port = find_free_port()

    def become(user):
        for name, value in s3.environment(user).items():
            monkeypatch.setenv(name, value)

    with serve_s3(tmp_path / "s3") as s3:
        become("nobody")
        with start_pool(tmp_path / "pool", port):
            become("owner")
            code, line = finish_job(start_job(dump, "s3://store/out", server, port))
    assert (code, line) == (
        2,
        "error: from the engine's Python workers s3://store/out cannot be reached: Forbidden",
    )


@pytest.mark.parametrize(
    ("address", "kind", "words"),
    [
        ("localhost:1", TransientError, "localhost:1 cannot be reached: "),
        ("localhost", UserError, "write HOST:PORT"),
        ("http://localhost:8099", UserError, "write HOST:PORT"),
        ("localhost:99999", UserError, "write HOST:PORT"),
    ],
)
def test_an_address_without_a_job_server_is_told_in_one_line(address, kind, words):
    with pytest.raises(kind, match=words):
        job_server.ask_job_server(address, "--job_endpoint")


def test_a_server_of_another_kind_is_told_in_one_line(server):
    job_server.ask_job_server(f"localhost:{server}", "--job_endpoint")
    with pytest.raises(UserError, match="is no JobManager of Flink"):
        flink_jobs.read_flink_overview(f"localhost:{server}", "engine.flink_master")
    with serve_flink(slots=2) as flink, pytest.raises(UserError, match="is no Beam job server; "):
        job_server.ask_job_server(flink.address, "--job_endpoint")


def test_a_job_whose_beam_is_not_the_clusters_is_told_before_it_is_sent(server):
    words = ["--runner=PortableRunner", f"--job_endpoint=localhost:{server}"]
    with serve_flink(2, jars=["beam-runners-flink-1.19-2.50.0.jar"]) as flink:
        given = [*words, f"--flink_master={flink.address}"]
        with pytest.raises(UserError, match=r"^--flink_master \S+: .* is of Beam 2\.50"):
            beam_options.resolve_beam_options(given, 0)
    beam_options.resolve_beam_options(given, 0)  # it is away


def test_a_runner_that_starts_a_server_in_java_needs_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    options = PipelineOptions(["--runner=FlinkRunner"])
    with pytest.raises(UserError, match="there is no java on PATH; install Java 17, or "):
        job_server.check_job_server(options)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "Pipeline x failed in state FAILED: java.lang.RuntimeException: Failed\n"
            "\tat org.apache.flink.X\nCaused by: java.io.IOException: disk\n\t... 15 more",
            JobFailed,
            "the engine's job failed: java.io.IOException: disk",
        ),
        (
            "Pipeline x failed in state FAILED: a.B: c\nCaused by: x.TimeoutException: Heartbeat "
            "of TaskManager with id 7 timed out.",
            TransientError,
            "lost or did not reach a worker: x.TimeoutException: Heartbeat",
        ),
        (
            "Pipeline x failed in state FAILED: x.B: x.StatusRuntimeException: "
            "CANCELLED: call already cancelled.",
            TransientError,
            "lost or did not reach a worker: x.B: x.StatusRuntimeException: CANCELLED",
        ),
        (
            "org.apache.flink.client.program.ProgramInvocationException: Job failed\n\tat x.Y\n"
            "Caused by: java.util.concurrent.CompletionException: org.apache.flink.runtime"
            ".messages.FlinkJobNotFoundException: Could not find Flink job (04c7)\n\t... 44 more\n"
            "Caused by: org.apache.flink.runtime.messages.FlinkJobNotFoundException: Could not "
            "find Flink job (04c7)\n\tat x.Y\n\t... 5 more\n]",
            TransientError,
            "JobManager went away: org.apache.flink.runtime.messages.FlinkJobNotFoundException: Co",
        ),
        (
            "Pipeline x failed in state FAILED: java.net.ConnectException: Connection refused",
            TransientError,
            "JobManager went away: java.net.ConnectException: Connection refused; what is done is",
        ),
        (
            "Pipeline x failed in state FAILED: java.util.concurrent.TimeoutException: Timeout has "
            "occurred: 300000 ms",
            TransientError,
            "the engine had too few free slots for 300 s: other jobs hold them, or a ",
        ),
        ("Pipeline x failed in state CANCELLED: unknown error", JobFailed, "was cancelled on the"),
        (
            "… ModuleNotFoundError: No module named 'beam_jobs.engine.worker_check'",
            UserError,
            "workers have no beam_jobs.engine.worker_check; install",
        ),
    ],
)
def test_why_a_job_failed_on_an_engine_is_one_line(text, kind, words):
    found = graph_runner.translate_engine_error(RuntimeError(text))
    assert type(found) is kind
    assert words in str(found)
    assert "\n" not in str(found)
