"""Whether work grows no faster than its input, said on a machine of any speed."""

import time
from collections.abc import Callable
from typing import Any

QUICK_SECONDS = 0.5
ENDLESS_SECONDS = 15.0
ATTEMPTS = 3


def measure_cpu_seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of this process that the work takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


def is_linear(work: Callable[[Any], Any], whole: Any, half: Any) -> bool:
    """Return whether the work takes less than three times as long for the whole as for half of it,
    where four times would be quadratic; a moment is never too long.
    """
    for _ in range(ATTEMPTS):
        seconds = measure_cpu_seconds(lambda: work(whole))
        if seconds < QUICK_SECONDS or seconds < 3 * measure_cpu_seconds(lambda: work(half)):
            return True
        if seconds > ENDLESS_SECONDS:
            return False
    return False
