"""Stages in child processes: progress, failures, and that no process outlives its run."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.runner import processes
from amazon_electra.flows.runner.processes import Makers, run_job
from amazon_electra.flows.store.store import Store
from tests.flows.toy_graph import job
from tests.patience import eventually

JOB = "tests.flows.job"
LONG = {"seconds_a_step": 1000}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def toy(title="a", **ways):
    return job("small", {}, ways, title=title)


def make(store, stage, makers=None):
    """Make a stage; return what its job reported of its progress."""
    events = (makers or Makers(store, [[stage]])).follow(stage)
    return [event["progress"] for event in events if event["is"] == "progress"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has collected yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def read_pid(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text()))


def test_a_stage_has_its_result_progress_and_cost(store):
    stage = toy()
    progress = make(store, stage)
    manifest = store.manifest(stage)
    assert manifest["result"]["dropped"] == {"odd": 1, "even": 2}
    assert (progress[0]["done"], progress[-1]["done"]) == (0, 3)
    assert 0 < manifest["cpu_seconds"] <= 2 * manifest["seconds"] + 1
    assert manifest["peak_megabytes"] > 5
    assert f"run_stage {store.root} {stage.path}" in (store.folder(stage) / "log.txt").read_text()
    assert make(store, stage) == []


def test_a_users_mistake_is_told_in_its_own_words(store):
    with pytest.raises(UserError, match=r"^line 3 of reviews\.json"):
        make(store, toy(how="mistake"))


@pytest.mark.parametrize(
    ("how", "cause", "transient"),
    [
        ("bug", "ZeroDivisionError: a bug", False),
        ("killed", "ended by SIGKILL", True),
        ("crashed", "ended by SIGSEGV", False),
        ("exit 255", "no output", False),
        ("network", "the bucket went away", True),
    ],
)
def test_a_failure_names_cause_and_log(store, how, cause, transient):
    stage = toy(how=how)
    with pytest.raises(JobFailed, match=cause) as caught:
        make(store, stage)
    assert isinstance(caught.value, TransientError) is transient
    assert str(store.folder(stage) / "log.txt") in str(caught.value)


def test_a_group_has_one_process_for_all(store):
    stages = [toy(name) for name in "abc"]
    makers = Makers(store, [[stage] for stage in stages])
    for stage in reversed(stages):
        make(store, stage, makers)
    pids = {read_pid(store.folder(stage) / "pid") for stage in stages}
    assert len(pids) == 1
    eventually(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize("how", ["mistake", "bug", "killed", "exit 255"])
def test_the_others_of_a_group_go_on(store, how):
    stages = [toy("a"), toy("b", how=how), toy("c")]
    makers = Makers(store, [[stage] for stage in stages])
    make(store, stages[0], makers)
    with pytest.raises((UserError, JobFailed)):
        make(store, stages[1], makers)
    make(store, stages[2], makers)
    first, _, last = (read_pid(store.folder(stage) / "pid") for stage in stages)
    assert first != last, "nothing of a failure is left for the next one"


def test_what_is_missing_is_made_when_it_is_wanted_again(store):
    stages = [toy("a", how="once"), toy("b")]
    makers = Makers(store, [[stage] for stage in stages])
    with pytest.raises(TransientError):
        make(store, stages[0], makers)
    for stage in stages:
        make(store, stage, makers)
    assert all(store.manifest(stage) for stage in stages)


def test_a_chain_waits_for_what_it_is_made_of(store):
    source = toy("a")
    made = job("small", {"source": source}, {}, title="b")
    makers = Makers(store, [[source], [made]], at_once=2)
    make(store, source, makers)
    make(store, made, makers)
    assert store.manifest(made)


def test_two_are_made_at_once_where_two_may_be(store, tmp_path):
    """The first ends when the second has."""
    gate = tmp_path / "gate"
    stages = [toy("a", gate=gate), toy("b")]
    makers = Makers(store, [[stage] for stage in stages], at_once=2)
    make(store, stages[1], makers)
    gate.touch()
    make(store, stages[0], makers)


def test_the_first_chain_begins_first_whoever_asks(store, monkeypatch):
    """One of another environment needs a process of its own."""
    stages = [toy(title) for title in "abc"]
    monkeypatch.setattr(
        type(stages[0]), "list_environment", lambda self, _: {"TOY": str(self.title == "a")}
    )
    makers = Makers(store, [[stage] for stage in stages], at_once=2)
    events = makers.follow(stages[2])
    next(events)
    assert makers.is_making(stages[0])
    for stage in stages[:2]:
        make(store, stage, makers)
    assert "failed" not in [event["is"] for event in events]
    assert all(store.manifest(stage) for stage in stages)


def test_a_stubborn_job_and_its_children_are_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    words = ["--output", str(tmp_path), "--how", "stubborn", "--seconds_a_step", "1000"]
    child = processes.start_child([sys.executable, "-m", JOB, *words], tmp_path / "log.txt")
    job_id, grandchild = read_pid(tmp_path / "pid"), read_pid(tmp_path / "grandchild")
    assert alive(job_id)
    child.end()
    eventually(lambda: not alive(job_id) and not alive(grandchild))


def test_an_exception_in_the_flow_ends_all_jobs(store):
    failures, stages = [], [toy(name, **LONG) for name in "ab"]

    def follow_one(stage):
        try:
            make(store, stage)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=follow_one, args=(stage,)) for stage in stages]

    def cancelled_run():
        with processes.end_children_on_error():
            for thread in threads:
                thread.start()
            for stage in stages:
                read_pid(store.folder(stage) / "pid")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cancelled_run()
    for thread in threads:
        thread.join()
    assert [type(failure) for failure in failures] in ([InterruptedError] * 2, [TransientError] * 2)
    assert not any(alive(read_pid(store.folder(stage) / "pid")) for stage in stages)


def test_a_job_that_is_just_being_started_ends_too(tmp_path, monkeypatch):
    started = []

    class StartedWhileTheRunEnds(processes.Child):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)
            processes._ending.set()

    monkeypatch.setattr(processes, "Child", StartedWhileTheRunEnds)
    with pytest.raises(InterruptedError), processes.end_children_on_error():
        run_job(JOB, ["--output", str(tmp_path), "--seconds_a_step", "1000"], tmp_path / "log.txt")
    assert [child.has_ended() for child in started] == [True]


@pytest.mark.parametrize("killed", ["run", "session"])
def test_kill_9_leaves_no_job(store, killed):
    """Of the run, or of the process that makes its stages."""
    script = (
        "import sys; from tests.flows.test_processes import *; "
        "make(Store(sys.argv[1]), toy(**LONG))"
    )
    flow = subprocess.Popen([sys.executable, "-c", script, str(store.root)])
    worker = read_pid(store.folder(toy(**LONG)) / "pid")
    supervisor = os.getsid(worker)
    assert alive(worker)
    os.kill(flow.pid if killed == "run" else supervisor, signal.SIGKILL)
    eventually(lambda: not alive(worker) and not alive(supervisor))
    assert flow.wait() != 0


def test_code_where_the_user_stands_is_not_run(store, tmp_path, monkeypatch):
    executed = tmp_path / "executed"
    for package in ("tests", "beam_jobs", "orjson"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"open({str(executed)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    make(store, toy())
    assert not executed.exists()
