"""Threads that share the work of a CPU; each computes with one core, so that how many there are
changes no sum.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

T = TypeVar("T")
YIELDING = 10
"""Nice value of threads that take what others leave: beside one of 0 a tenth of a core."""


class Workers:
    """Threads for independent parts of a computation, or this thread."""

    def __init__(self, pool: ThreadPoolExecutor | None = None) -> None:
        self._pool = pool

    def map(self, compute: Callable[..., T], *given: Iterable[Any]) -> Iterator[T]:
        """Yield what is computed, in order."""
        return self._pool.map(compute, *given) if self._pool else map(compute, *given)


@contextmanager
def share_cores(device: str, threads: int | None = None, yields: bool = False) -> Iterator[Workers]:
    """Yield threads of a CPU, as many as cores by default, or this thread, as other kinds of device
    need it. Those that yield leave the cores to other processes.
    """
    if device != "cpu":
        yield Workers()
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        begin = _yield if yields else None
        with ThreadPoolExecutor(threads or os.cpu_count(), initializer=begin) as pool:
            yield Workers(pool)
    finally:
        torch.set_num_threads(before)


def _yield() -> None:
    if sys.platform == "linux":  # elsewhere a nice value is that of the process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), YIELDING)
