"""Threads that share a CPU, a core each, so that how many there are changes no sum."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

Map = Callable[..., Iterator[Any]]
"""Takes a function and its arguments, as `map` does; yields what it returns, in order."""
YIELDING = 10
"""Nice value of threads that take what others leave: beside one of 0 a tenth of a core."""


@contextmanager
def share_cores(device: str, threads: int | None = None, yields: bool = False) -> Iterator[Map]:
    """Yield a `map` whose calls share the cores of a CPU; other devices need one thread."""
    if device != "cpu":
        yield map
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        begin = _yield if yields else None
        with ThreadPoolExecutor(threads or os.cpu_count(), initializer=begin) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(before)


def _yield() -> None:
    if sys.platform == "linux":  # elsewhere a nice value is that of the process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), YIELDING)
        with suppress(OSError):  # sessions share the cores (sched(7), autogroup), not threads
            Path("/proc/self/autogroup").write_text(str(YIELDING), encoding="ascii")
