"""Acts at a step of the run in this process, without waiting for the clock."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from amazon_electra.model.tracking.metrics_log import MetricsLog


@contextmanager
def act_at(step: int, act: Callable[[], None]) -> Iterator[None]:
    """Act when this step is logged."""
    log = MetricsLog.log

    def log_and_act(self: MetricsLog, number: int, **numbers: float) -> None:
        log(self, number, **numbers)
        if number == step:
            act()

    with patch.object(MetricsLog, "log", log_and_act):
        yield


def terminated_at(step: int) -> AbstractContextManager[None]:
    """Send the run a SIGTERM when this step is logged."""
    return act_at(step, lambda: signal.raise_signal(signal.SIGTERM))
