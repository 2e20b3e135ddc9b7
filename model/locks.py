"""Locks between processes: each is held on an open file and dies with the process that holds it."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

POLL_SECONDS = 0.2


def try_lock(file: IO) -> bool:
    """Lock an open file for this process; return False if another process holds the lock."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def exclusive_lock(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[IO]:
    """Hold the lock of a file; yield it. `on_wait` is called once if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        if not try_lock(file):
            on_wait()
            while not try_lock(file):
                time.sleep(POLL_SECONDS)
        yield file
