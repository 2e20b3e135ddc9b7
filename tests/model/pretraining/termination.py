"""Sends a SIGTERM to the run in this process at a step, without waiting for the clock."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from model.tracking.metrics_log import MetricsLog


@contextmanager
def terminated_at(step: int) -> Iterator[None]:
    """Raise the signal when this step is logged."""
    log = MetricsLog.log

    def log_and_raise(self: MetricsLog, number: int, **numbers: float) -> None:
        log(self, number, **numbers)
        if number == step:
            signal.raise_signal(signal.SIGTERM)

    with patch.object(MetricsLog, "log", log_and_raise):
        yield
