"""Wait for an event, not for seconds: the machine may be slow and run other tests beside this one.

The patience is far above what anything takes; it only ends a test that hangs.
"""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 400.0
LEAST_PAUSE, MOST_PAUSE = 0.05, 1.0
"""Seconds between two looks. A look that itself takes long, as one at a Prefect server does, is
followed by a pause nine times as long: what is waited for needs the cores.
"""


def eventually(
    find: Callable[[], Any],
    describe_failure: Callable[[], Any] = lambda: "",
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """Return what is found, once it is true."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := find():
            return found
        now = time.monotonic()
        assert now < deadline, f"not within {seconds:.0f} s; {describe_failure()}"
        time.sleep(min(max(9 * (now - began), LEAST_PAUSE), MOST_PAUSE))
