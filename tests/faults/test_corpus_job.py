"""The corpus job under faults: it ends with a clear error, and the same command continues to the
same bytes.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.beam_jobs.dumps import digests, review, run_job, write_lines
from tests.patience import eventually

REVIEWS, SMALL = 10_000, 400
PR_CAPBSET_DROP = 24
"""linux/prctl.h"""
CAPABILITIES = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, linux/capability.h."""


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Path:
    """Two units of one plain file, one gz, in part the same, and some more, so that there is much
    left to do when the first unit is done.
    """
    folder = tmp_path_factory.mktemp("dump")
    write_lines(folder / "a.json", [review(i) for i in range(REVIEWS)])
    for name, begin in zip("cdefg", range(2 * REVIEWS, 3 * REVIEWS, REVIEWS // 5), strict=True):
        write_lines(folder / f"{name}.json", [review(i) for i in range(begin, begin + SMALL)])
    write_lines(folder / "b.json.gz", [review(i) for i in range(REVIEWS - 200, REVIEWS + 200)])
    return folder


@pytest.fixture(scope="module")
def undisturbed(dump, tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run_job(folder, "--input", dump)
    return digests(folder)


def start(
    dump: Path, output: Path, *options: str, prepare: Callable[[], None] | None = None
) -> subprocess.Popen:
    command = [sys.executable, "-m", "amazon_electra.beam_jobs.corpus_job", *options]
    command += ["--input", str(dump), "--output", str(output)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=prepare
    )


def wait_until_done(output: Path, step: str, job: subprocess.Popen) -> None:
    """Wait until the first unit of a step is done, which is not the job's end."""
    while not done(output, step):
        assert job.poll() is None, job.communicate()
        time.sleep(0.02)


def done(output: Path, step: str) -> list[Path]:
    return list(output.glob(f"_work-*/{step}/*.json"))


def is_at_work(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def finish(dump: Path, output: Path, *options: str) -> dict:
    job = start(dump, output, *options)
    printed, errors = job.communicate()
    assert job.returncode == 0, errors
    return json.loads(printed)


def test_a_killed_worker_ends_the_job_and_the_next_run_continues(dump, undisturbed, tmp_path):
    job = start(dump, tmp_path, "--direct_num_workers=2")
    wait_until_done(tmp_path, "prepared", job)
    workers = psutil.Process(job.pid).children(recursive=True)
    workers[-1].kill()
    _, errors = job.communicate()
    assert job.returncode == os.EX_TEMPFAIL
    assert [
        line for line in errors.splitlines() if line.startswith("error: Worker subprocess exited")
    ]
    assert "Traceback" not in errors
    eventually(lambda: not any(is_at_work(worker) for worker in workers), seconds=60)
    before = {path: path.stat().st_mtime_ns for path in done(tmp_path, "prepared")}
    assert before
    job = start(dump, tmp_path, "--direct_running_mode=in_memory")
    while job.poll() is None:
        for path, changed in before.items():
            with suppress(FileNotFoundError):  # the job takes them away at its end
                assert path.stat().st_mtime_ns == changed
        time.sleep(0.05)
    assert job.returncode == 0
    assert digests(tmp_path) == undisturbed


@pytest.mark.smoke
def test_a_killed_job_continues_to_the_same_bytes(dump, undisturbed, tmp_path):
    job = start(dump, tmp_path, "--direct_running_mode=in_memory")
    wait_until_done(tmp_path, "written", job)
    job.kill()
    job.wait()
    assert (tmp_path / "corpus.json").exists() is False
    result = finish(dump, tmp_path)
    assert result["read"] == REVIEWS + 400 + 5 * SMALL
    assert result["dropped"] == {"duplicate": 200}
    assert digests(tmp_path) == undisturbed


def test_another_job_starts_afresh_in_the_same_folder(dump, undisturbed, tmp_path):
    job = start(dump, tmp_path, "--direct_running_mode=in_memory", "--seed=5")
    wait_until_done(tmp_path, "prepared", job)
    job.terminate()
    job.communicate()
    assert job.returncode == 143
    (tmp_path / "not ours.txt").write_text("kept")
    run_job(tmp_path, "--input", dump)
    assert (tmp_path / "not ours.txt").read_text() == "kept"
    (tmp_path / "not ours.txt").unlink()
    assert digests(tmp_path) == undisturbed


@pytest.mark.smoke
def test_a_full_disk_is_said_and_the_next_run_continues(dump, undisturbed, tmp_path):
    """No file may grow beyond 400 kB, which fails as a full disk does."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    words = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    job = start(dump, tmp_path, *words, prepare=limit)
    _, errors = job.communicate()
    assert job.returncode == 1
    assert (
        "error: File too large: make room" in errors or "File too large" in errors.splitlines()[-1]
    )
    assert not (tmp_path / "corpus.json").exists()
    run_job(tmp_path, "--input", dump)
    assert digests(tmp_path) == undisturbed


def drop_root_rights() -> None:
    """Take from a process about to be executed what lets root read and write everything."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in CAPABILITIES:
            assert libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0, ctypes.get_errno()


def test_missing_rights_are_named(tmp_path):
    closed = write_lines(tmp_path / "closed.json", [review(1)])
    closed.chmod(0)
    (tmp_path / "full").mkdir(mode=0o500)
    open_dump = write_lines(tmp_path / "open.json", [review(1)])
    job = start(closed, tmp_path / "corpus", prepare=drop_root_rights)
    printed, errors = job.communicate()
    assert (job.returncode, f"{closed} cannot be read: Permission denied" in errors) == (2, True)
    assert [line.partition(" ")[0] for line in errors.splitlines()] == ["error:"]
    assert printed == ""
    job = start(open_dump, tmp_path / "full", prepare=drop_root_rights)
    _, errors = job.communicate()
    assert (job.returncode, "full cannot be written: Permission denied" in errors) == (2, True)
