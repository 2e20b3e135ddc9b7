"""Wait for an event, not for seconds: the machine may be slow and run other tests beside this one.

The patience is far above what anything takes; it only ends a test that hangs.
"""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 400.0


def eventually(
    find: Callable[[], Any],
    describe_failure: Callable[[], Any] = lambda: "",
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """Return what is found, once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s; {describe_failure()}"
        time.sleep(0.05)
    return found
