"""Stages in child processes: progress, failures, and that no process outlives its run."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.runner import processes
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.store import Store
from tests.flows.toy_graph import job
from tests.patience import eventually

LONG = {"seconds_a_step": 1000}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def together(store):
    """Processes that make one stage after another."""
    runner = StageRunner(store)
    yield runner
    runner.end()


def toy(title="a", **ways):
    return job("small", {}, ways, title=title)


class Reports(list):
    """What jobs reported of their progress."""

    def on_progress(self, stage, report):
        self.append(report)


def make(store, stage, runner=None):
    """Make a stage; return what its job reported of its progress."""
    own, reports = runner or StageRunner(store), Reports()
    own.listeners = [reports]
    try:
        own.complete_stage(stage)
    finally:
        if not runner:
            own.end()
    return reports


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has collected yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def read_pid(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text()))


def test_a_stage_has_its_result_progress_and_cost(store, together):
    stage = toy()
    progress = make(store, stage, together)
    manifest = store.manifest(stage)
    assert manifest["result"]["dropped"] == {"odd": 1, "even": 2}
    assert (progress[0]["done"], progress[-1]["done"]) == (0, 3)
    assert 0 < manifest["cpu_seconds"] <= 2 * manifest["seconds"] + 1
    assert f"run_stage {store.root} {stage.path}" in (store.folder(stage) / "log.txt").read_text()
    assert make(store, stage, together) == []


@pytest.mark.parametrize(
    ("how", "kind", "cause"),
    [
        ("mistake", UserError, "line 3 of reviews.json"),
        ("bug", JobFailed, "ZeroDivisionError: a bug"),
        ("killed", TransientError, "ended by SIGKILL"),
        ("crashed", JobFailed, "ended by SIGSEGV"),
        ("exit 255", JobFailed, "no output"),
        ("network", TransientError, "the bucket went away"),
    ],
)
def test_a_failure_names_its_cause_and_the_others_go_on(store, together, how, kind, cause):
    """Two before and after it have one process, one after it another: nothing of it is left."""
    stages = [toy("a"), toy("b"), toy("c", how=how), toy("d")]
    for stage in stages[:2]:
        make(store, stage, together)
    with pytest.raises(kind) as caught:
        make(store, stages[2], together)
    assert type(caught.value) is kind
    assert cause in str(caught.value)
    assert kind is UserError or str(store.folder(stages[2]) / "log.txt") in str(caught.value)
    make(store, stages[3], together)
    pids = [read_pid(store.folder(stage) / "pid") for stage in stages]
    assert pids[0] == pids[1]
    assert pids[3] not in pids[:3]
    together.end()
    assert not any(map(alive, pids))


def test_stubborn_jobs_are_killed_after_one_grace(tmp_path, monkeypatch):
    """With their children, before Prefect kills the run that was cancelled."""
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    waited, wait = [], subprocess.Popen.wait

    def note(child, timeout=None):
        waited.append(timeout or 0)
        return wait(child, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", note)
    children, pids = [], []
    for output in (tmp_path / "a", tmp_path / "b"):
        given = f"Path({str(output)!r}), how='stubborn', seconds_a_step=1000"
        command = [sys.executable, "-c", f"from tests.flows.job import Path, run; run({given})"]
        children.append(processes.Child(command, tmp_path / "log.txt"))
        pids += [read_pid(output / "pid"), read_pid(output / "grandchild")]
    assert all(map(alive, pids))
    processes.end_children(children)
    eventually(lambda: not any(map(alive, pids)))
    assert sum(waited) < 2


def test_an_exception_in_the_flow_ends_all_jobs(store, together):
    failures, stages = [], [toy(name, **LONG) for name in "ab"]

    def follow_one(stage):
        try:
            make(store, stage, together)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=follow_one, args=(stage,)) for stage in stages]

    for thread in threads:
        thread.start()
    for stage in stages:
        read_pid(store.folder(stage) / "pid")
    together.end()
    for thread in threads:
        thread.join()
    assert [type(failure) for failure in failures] == [InterruptedError] * 2
    assert not any(alive(read_pid(store.folder(stage) / "pid")) for stage in stages)


def test_code_where_the_user_stands_is_not_run(store, tmp_path, monkeypatch):
    executed = tmp_path / "executed"
    for package in ("tests", "beam_jobs", "orjson"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"open({str(executed)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    make(store, toy())
    assert not executed.exists()
