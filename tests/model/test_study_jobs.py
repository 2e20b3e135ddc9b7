"""The jobs of a study: real processes, really killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.command import UserMistake
from model.evaluation import study_jobs
from model.evaluation.study_jobs import JobFailed, Jobs, claimed

TICKING = """
import signal, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    with open(sys.argv[1], "a") as file:
        file.write(".")
    time.sleep(0.02)
"""
STUDY = """
import sys
from pathlib import Path
from model.evaluation import study_jobs
study_jobs.GRACE_SECONDS = 0.5
folder = Path(sys.argv[1])
with study_jobs.claimed(folder) as lock:
    study_jobs.Jobs().run("ticking", [str(folder / "ticks"), sys.argv[2]], folder, 1, lock)
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "ticking.py").write_text(TICKING)
    (tmp_path / "ending.py").write_text("import sys\nprint('error: no such arm')\nsys.exit(int(sys.argv[1]))")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}")
    return tmp_path


def ticks(folder):
    return (folder / "ticks").stat().st_size if (folder / "ticks").exists() else 0


@pytest.mark.parametrize("job", ["obedient", "stubborn"])
def test_a_job_ends_with_a_study_that_is_killed_and_its_folder_is_locked_until_then(modules, job):
    folder = modules / "cell"
    study = subprocess.Popen([sys.executable, "-c", STUDY, str(folder), job])
    deadline = time.monotonic() + 120
    while ticks(folder) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    study.send_signal(signal.SIGKILL)
    study.wait()
    with claimed(folder):
        ended = ticks(folder)
        time.sleep(0.2)
        assert ticks(folder) == ended > 0


def test_a_study_that_is_told_to_end_ends_its_jobs(modules, monkeypatch):
    folder = modules / "cell"
    jobs = Jobs()

    def stop_when_it_runs(frame_number, frame):
        if ticks(folder):
            jobs.stop()
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.05)

    previous = signal.signal(signal.SIGALRM, stop_when_it_runs)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with claimed(folder) as lock, pytest.raises(JobFailed, match="ended with the study"):
            jobs.run("ticking", [str(folder / "ticks"), "obedient"], folder, 1, lock)
    finally:
        signal.signal(signal.SIGALRM, previous)
    with claimed(folder) as lock, pytest.raises(JobFailed, match="not started"):
        jobs.run("ticking", [str(folder / "ticks"), "obedient"], folder, 1, lock)


def test_a_job_that_is_just_being_started_ends_with_its_study_too(modules, monkeypatch):
    folder, jobs, start = modules / "cell", Jobs(), subprocess.Popen

    def start_and_be_stopped(*arguments, **options):
        child = start(*arguments, **options)
        jobs.stop()
        return child

    monkeypatch.setattr(subprocess, "Popen", start_and_be_stopped)
    began = time.monotonic()
    with claimed(folder) as lock, pytest.raises(JobFailed, match="ended with the study"):
        jobs.run("ticking", [str(folder / "ticks"), "obedient"], folder, 1, lock)
    assert time.monotonic() - began < study_jobs.GRACE_SECONDS, "it is told to end, not killed after the grace"


def test_exit_codes_are_told_apart(modules):
    with claimed(modules / "cell") as lock:
        Jobs().run("ending", ["0"], modules / "cell", 1, lock)
        with pytest.raises(UserMistake, match=r"^ending: no such arm$"):
            Jobs().run("ending", ["2"], modules / "cell", 1, lock)
        with pytest.raises(JobFailed, match=r"ending ended with 1: error: no such arm; see .*log\.txt"):
            Jobs().run("ending", ["1"], modules / "cell", 1, lock)
    assert (modules / "cell" / "log.txt").read_text().count("no such arm") == 4
