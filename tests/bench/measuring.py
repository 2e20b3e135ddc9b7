"""CPU seconds, seconds and memory of a function with all the processes that it starts.

Each run is a fork of its own, so that no run finds what another has warmed up, and all find the
imports done.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
