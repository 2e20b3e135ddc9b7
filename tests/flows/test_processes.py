"""Jobs as child processes: their result, their mistakes, and that none outlives the flow."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.runner import processes
from amazon_electra.flows.runner.processes import WarmWorkers, run_job
from tests.patience import eventually

JOB = "tests.flows.job"


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has collected yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def read_pid(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text()))


def test_a_job_gives_its_result_its_progress_and_its_cost(tmp_path):
    seen = []
    done = run_job(JOB, ["--output", str(tmp_path)], tmp_path / "log.txt", follow=seen.append)
    assert (done.result["steps"], done.result["dropped"]) == (3, {"odd": 1, "even": 2})
    assert seen[0]["done"] == 0
    assert seen[-1]["done"] == 3
    assert seen[-1]["loss"] == pytest.approx(1 / 3)
    assert 0 < done.cpu_seconds <= 2 * done.seconds + 1
    assert done.peak_megabytes > 5


def test_the_address_of_a_job_on_an_engine_is_what_our_jobs_report(tmp_path):
    address = "http://jobmanager:8081/#/job/running/1f/overview"
    code = f"from amazon_electra.beam_jobs.core.progress import announce_job; announce_job({address!r})"  # noqa: E501
    command = [sys.executable, "-c", code]
    with processes.start_child(processes.Child, command, tmp_path / "log.txt") as child:
        assert list(child.follow_progress()) == [{"link": address}]


def test_a_users_mistake_is_told_in_its_own_words(tmp_path):
    with pytest.raises(UserError, match=r"^line 3 of reviews\.json"):
        run_job(JOB, ["--output", str(tmp_path), "--how", "mistake"], tmp_path / "log.txt")


@pytest.mark.parametrize(
    ("how", "cause", "transient"),
    [
        ("bug", "ZeroDivisionError: a bug", False),
        ("killed", "ended by SIGKILL", True),
        ("exit 255", "no output", False),
        ("network", "the bucket went away", True),
    ],
)
def test_a_failure_names_cause_and_log_and_whether_it_may_pass(tmp_path, how, cause, transient):
    with pytest.raises(JobFailed, match=cause) as caught:
        run_job(JOB, ["--output", str(tmp_path), "--how", how], tmp_path / "log.txt")
    assert isinstance(caught.value, TransientError) is transient
    assert str(tmp_path / "log.txt") in str(caught.value)


def test_a_job_that_hangs_is_told_ended_and_may_be_tried_again(tmp_path, monkeypatch, heard):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    words = ["--output", str(tmp_path), "--how", "stopped once"]
    with pytest.raises(TransientError, match=r"0\.05 minutes"):
        run_job(JOB, words, tmp_path / "log.txt", hang_seconds=3)
    eventually(lambda: not alive(read_pid(tmp_path / "pid")))
    assert any("hangs" in record.getMessage() for record in heard.records)
    assert run_job(JOB, words, tmp_path / "log.txt", hang_seconds=60).result["steps"] == 3


def test_a_job_that_says_nothing_while_it_computes_does_not_hang(tmp_path):
    words = ["--output", str(tmp_path), "--how", "busy"]
    done = run_job(JOB, words, tmp_path / "log.txt", hang_seconds=2)
    assert done.cpu_seconds > 3


def test_a_job_that_ignores_sigterm_and_its_children_are_killed_after_the_grace(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    words = ["--output", str(tmp_path), "--how", "stubborn", "--seconds_a_step", "1000"]
    command = [sys.executable, "-m", JOB, *words]
    with processes.start_child(processes.Child, command, tmp_path / "log.txt"):
        job, grandchild = read_pid(tmp_path / "pid"), read_pid(tmp_path / "grandchild")
        assert alive(job)
    eventually(lambda: not alive(job) and not alive(grandchild))


def test_an_exception_in_the_flow_ends_the_jobs_of_all_its_threads(tmp_path):
    failures = []

    def follow_one(folder: Path) -> None:
        try:
            run_job(JOB, ["--output", str(folder), "--seconds_a_step", "1000"], folder / "log.txt")
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=follow_one, args=(tmp_path / name,)) for name in "ab"]

    def cancelled_run() -> None:
        with processes.end_children_on_error():
            for thread in threads:
                thread.start()
            read_pid(tmp_path / "a" / "pid")
            read_pid(tmp_path / "b" / "pid")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cancelled_run()
    for thread in threads:
        thread.join()
    assert [type(failure) for failure in failures] == [TransientError, TransientError]
    assert not any(alive(read_pid(tmp_path / name / "pid")) for name in "ab")


def test_a_job_that_is_just_being_started_ends_too(tmp_path, monkeypatch):
    started = []

    class StartedWhileTheRunEnds(processes.Child):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.append(self)
            processes._ending.set()
            processes.end_children()

    monkeypatch.setattr(processes, "Child", StartedWhileTheRunEnds)
    with (
        pytest.raises(InterruptedError),
        processes.end_children_on_error(),
    ):
        run_job(JOB, ["--output", str(tmp_path), "--seconds_a_step", "1000"], tmp_path / "log.txt")
    assert [child.has_ended() for child in started] == [True]
    assert started[0].find_cause() == "ended by SIGTERM", "not killed after the grace"


def test_kill_9_of_the_flow_leaves_no_job(tmp_path):
    script = (
        "import sys; from pathlib import Path; from amazon_electra.flows.runner.processes import run_job; "  # noqa: E501
        "folder = Path(sys.argv[1]); "
        f"run_job('{JOB}', ['--output', str(folder), '--seconds_a_step', '1000'], "
        "folder / 'log.txt')"
    )
    flow = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    job = read_pid(tmp_path / "pid")
    assert alive(job)
    os.kill(flow.pid, signal.SIGKILL)
    flow.wait()
    eventually(lambda: not alive(job))


def test_kept_processes_run_one_job_after_the_other_each_with_its_own_log_and_cost(tmp_path):
    def run(name: str, threads: str) -> int:
        folder, seen = tmp_path / name, []
        words, given = ["--output", str(folder)], {"OMP_NUM_THREADS": threads}
        done = run_job(JOB, words, folder / "log.txt", given, seen.append, kept=kept)
        assert done.result["steps"] == seen[-1]["done"] == 3
        assert (folder / "threads").read_text() == threads
        assert done.cpu_seconds <= 2 * done.seconds + 1
        assert done.peak_megabytes > 5
        assert f"-m {JOB} --output {folder}" in (folder / "log.txt").read_text()
        return read_pid(folder / "pid")

    with WarmWorkers() as kept:
        first, second, other, third = run("a", "1"), run("b", "1"), run("c", "2"), run("d", "1")
        assert first == second == third != other
        assert alive(first)
    assert not alive(first)
    assert not alive(other)


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [("mistake", UserError, "line 3"), ("killed", TransientError, "cell b.*SIGKILL.*b/log")],
)
def test_a_job_that_fails_in_a_kept_process_is_told_and_the_next_has_a_new_one(
    tmp_path, how, error, told
):
    with WarmWorkers() as kept:

        def run(name: str, *way: str) -> int:
            folder = tmp_path / name
            words = ["--output", str(folder), *way]
            run_job(JOB, words, folder / "log.txt", name=f"cell {name}", kept=kept)
            return read_pid(folder / "pid")

        first = run("a")
        with pytest.raises(error, match=told):
            run("b", "--how", how)
        eventually(lambda: not alive(first))
        assert run("c") != first


def test_code_in_the_folder_where_the_user_stands_is_not_run(tmp_path, monkeypatch):
    executed = tmp_path / "executed"
    for package in ("tests", "beam_jobs", "orjson"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"open({str(executed)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    done = run_job(JOB, ["--output", str(tmp_path / "job")], tmp_path / "log.txt")
    assert done.result["steps"] == 3
    assert not executed.exists()
