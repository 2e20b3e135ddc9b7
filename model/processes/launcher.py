"""Starts the processes of `--processes N` on this machine and ends them together.

Each is a process under guard (beam_jobs/job/guard.py), so that none outlives the one that was
started. Rank 0 reports as a single process does; of the others only the cause of a failure is
shown.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from beam_jobs.job.command import USER_ERROR
from beam_jobs.job.errors import JobFailed, TransientError, UserError
from beam_jobs.job.guard import GRACE_SECONDS, guard_command
from model.processes.rank import LOST, RENDEZVOUS

POLL_SECONDS = 0.05
SETTLE_SECONDS = 1.0
"""Until the first failure is taken for the cause; most others end meanwhile."""
LOOPBACK = "lo"


def is_launcher(processes: int | None) -> bool:
    """Return whether this process is to start others and is none of them itself."""
    return bool(processes and processes > 1) and "RANK" not in os.environ


def run_processes(module: str, arguments: Sequence[str], processes: int) -> dict[str, Any]:
    """Run `python -m module arguments…` in several processes; return the result of rank 0.

    Raise the error of the one that failed first; the others are ended.
    """
    with tempfile.TemporaryDirectory(prefix="processes-") as name:
        folder = Path(name)
        with _start_processes(
            [sys.executable, "-m", module, *arguments], processes, folder
        ) as all_:
            first = _wait_for_end(all_)
        if first is None:
            result: dict[str, Any] = json.loads(_build_path(folder, 0, "out").read_text())
            return result
        raise _build_error(first, processes, all_[first].returncode, folder)


@contextmanager
def _start_processes(
    command: Sequence[str], processes: int, folder: Path
) -> Iterator[list[Popen[bytes]]]:
    """Start the processes; all are over when the block is, however it is left."""
    started: list[Popen[bytes]] = []
    try:
        for rank in range(processes):
            with (
                open(_build_path(folder, rank, "out"), "wb") as out,
                open(_build_path(folder, rank, "err"), "wb") as err,
            ):
                started.append(
                    Popen(
                        guard_command(command, GRACE_SECONDS),
                        stdin=PIPE,
                        stdout=out,
                        stderr=err if rank else None,
                        env=_build_environment(rank, processes, folder),
                        start_new_session=True,
                    )
                )
        yield started
    finally:
        for process in started:
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()  # the guard ends its group
        for process in started:
            process.wait()


def _build_environment(rank: int, processes: int, folder: Path) -> dict[str, str]:
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes}
    environment = os.environ | {name: str(number) for name, number in places.items()}
    environment[RENDEZVOUS] = f"file://{folder / 'rendezvous'}"
    if rank:
        environment["AMAZON_ELECTRA_PROGRESS"] = "none"
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    return environment


def _build_path(folder: Path, rank: int, kind: str) -> Path:
    return folder / f"{rank}.{kind}"


def _wait_for_end(processes: list[Popen[bytes]]) -> int | None:
    """Wait until all have ended well, or one has not: return its rank.

    A process that ended because it lost another one (LOST) is not the first to fail. What all see
    at once rank 0 has told.
    """
    since = time.monotonic()
    while True:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, code in enumerate(codes) if code]
        causes = [rank for rank in failed if codes[rank] != LOST]
        if all(code is not None for code in codes):
            return next(iter(causes or failed), None)
        if causes and time.monotonic() > since + SETTLE_SECONDS:
            return causes[0]
        since = since if causes else time.monotonic()
        time.sleep(POLL_SECONDS)


def _build_error(rank: int, processes: int, code: int, folder: Path) -> BaseException:
    """Return the error that ends the launcher as its process was ended.

    Rank 0 has told what it was itself.
    """
    if code > 128:
        return TransientError(
            f"process {rank + 1} of {processes} was ended by signal {code - 128}; the same command "
            "continues from the last checkpoint"
        )
    if code == LOST:
        return TransientError(f"the {processes} processes lost each other; run the command again")
    if rank == 0:
        return SystemExit(code)
    cause = _find_cause(_build_path(folder, rank, "err"))
    if code == USER_ERROR:
        return UserError(cause)
    kind = TransientError if code == os.EX_TEMPFAIL else JobFailed
    return kind(f"process {rank + 1} of {processes}: {cause}")


def _find_cause(log: Path) -> str:
    """Return the last line that a process wrote, an error before any other."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("error: ")
