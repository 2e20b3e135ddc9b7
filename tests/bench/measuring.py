"""CPU seconds, seconds and memory of a function, or of commands, with all the processes they start.

Each run is a fork of its own, so that no run finds what another has warmed up, and all find the
imports done.
"""

import ctypes
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Measured:
    cpu_seconds: float
    seconds: float
    peak_rss_mb: float  # resident memory of all processes together, shared pages counted in each


def measure(function: Callable[..., Any], *arguments: Any) -> Measured:
    started, peak = time.monotonic(), 0
    pid = os.fork()
    if pid == 0:
        _run_and_exit(function, arguments)
    while True:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        peak = max(peak, resident(pid))
        time.sleep(SAMPLE_SECONDS)
    if status:
        raise SystemExit(f"{function.__name__} failed: see above")
    return Measured(used.ru_utime + used.ru_stime, time.monotonic() - started, peak / 1e6)


def measure_commands(commands: Sequence[Sequence[object]], folder: Path) -> Measured:
    """Measure commands one after another in a folder, their starting and imports included."""
    return measure(_run_commands, commands, folder)


def _run_commands(commands: Sequence[Sequence[object]], folder: Path) -> None:
    """Run commands; wait for what they leave behind too, so that its CPU time counts."""
    set_child_subreaper = 36  # of prctl(2)
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    one_thread = {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": ".:deploy/package",
    }
    for command in commands:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=folder, env=os.environ | one_thread, stderr=subprocess.PIPE, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}\n{done.stderr[-2000:]}")
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _run_and_exit(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    errors = os.dup(2)
    os.dup2(1, 2)
    code = 1
    try:
        function(*arguments)
        code = 0
    except BaseException:
        os.write(errors, traceback.format_exc().encode())
    sys.stdout.flush()
    os._exit(code)


def resident(pid: int) -> int:
    """Bytes of a process and all below it."""
    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                total += one.memory_info().rss
    return total
