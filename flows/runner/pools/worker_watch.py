"""Watches a run until a worker has begun it: tells of one that no worker takes, and notices one
whose worker was lost before it began. From then on the run has heartbeats of its own.
"""

import time
from typing import Any

from flows.runner.pulse import Pulse
from flows.runner.run_log import find_run_logger

QUEUE_SECONDS = 60.0
"""After which a run's log says that no worker has taken what it waits for."""
NAMING_SECONDS = 30.0
"""From a worker's word that it takes a run to its name on it, which follows at once."""
PENDING_SECONDS = 180.0
"""From a worker's word that it takes a run to the run's own, while that worker lives."""
HEARTBEATS = 3
"""As many a worker may miss."""
HEARTBEAT_SECONDS = 30
"""Of a worker that does not tell, Prefect's default."""
WORKER = "prefect.worker.name"
"""Label of a run that a worker has taken."""


class WorkerWatch:
    """Of one run that was given to a pool."""

    def __init__(self, pool: str, title: str):
        self._pool, self._title = pool, title
        self._began, self._is_told = time.monotonic(), False
        self._pending_since = 0.0
        self._pulse: Pulse | None = None

    def find_loss(self, client: Any, run: Any) -> str:
        """Return why a run is never going to begin; empty where it may, or has."""
        now = time.monotonic()
        if run.state.is_scheduled() and now - self._began > QUEUE_SECONDS and not self._is_told:
            self._is_told = True
            find_run_logger().warning(
                "%s: no worker of the pool %s is free", self._title, self._pool
            )
        if not run.state.is_pending():
            self._pending_since, self._pulse = 0.0, None
            return ""
        self._pending_since = self._pending_since or now
        name = run.labels.get(WORKER)
        if now - self._pending_since > (PENDING_SECONDS if name else NAMING_SECONDS):
            return "the worker that took it never began it"
        return self._find_dead_worker(client, str(name)) if name else ""

    def _find_dead_worker(self, client: Any, name: str) -> str:
        """Return that the worker gives no sign of life, where it is so."""
        workers = client.read_workers_for_work_pool(self._pool)
        known = {worker.name: worker for worker in workers}.get(name)
        interval = (known and known.heartbeat_interval_seconds) or HEARTBEAT_SECONDS
        self._pulse = self._pulse or Pulse(HEARTBEATS * interval)
        if not self._pulse.stands_still(known and known.last_heartbeat_time):
            return ""
        return f"the worker that took it has given no sign for {self._pulse.seconds:.0f} s"
