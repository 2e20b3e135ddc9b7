"""Has a worker of a pool make stages: starts a run of the deployment `run-stage-POOL`, a subflow of
the task that calls, and waits for it.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.context import TaskRunContext
from prefect.deployments import run_deployment
from prefect.runtime import flow_run
from prefect.states import Cancelling, Crashed

from beam_jobs.job.errors import TransientError, UserError
from flows.runner.pools.order import Order, remove_order, write_order
from flows.runner.processes import JobFailed, refuse_when_ending
from flows.runner.run_log import find_run_logger
from flows.runner.store import Store

POLL_SECONDS = 1.0
QUEUE_SECONDS = 60.0
"""After which a run's log says that no worker has taken what it waits for."""
PENDING_SECONDS = 180.0
"""From a worker's word that it starts a run to the run's own; one that was killed then never gives
it, and there is no heartbeat yet that anybody could miss.
"""


class PoolRunFailed(JobFailed):
    """A worker of a pool could not make a stage; another attempt would fail as well."""

    def __init__(self, name: str, cause: str):
        RuntimeError.__init__(self, cause)
        self.name, self.code, self.cause, self.log, self.transient = name, 1, cause, Path(), False


def name_deployment(pool: str) -> str:
    """Return the deployment by which a worker of the pool makes stages."""
    return f"run-stage/run-stage-{pool}"


def make_in_pool(store: Store, pool: str, order: Order) -> None:
    """Return once a worker of the pool has made what the order says."""
    task = TaskRunContext.get()
    attempt = task.task_run.run_count if task else 0
    first = order.stages[0].fingerprint if order.chains else "check"
    name = f"{flow_run.id}-{flow_run.run_count}-{pool}-{first}-{attempt}"
    write_order(store, name, order)
    try:
        run: Any = run_deployment(
            name_deployment(pool),
            parameters={"order": name, "title": order.title, "store": store.address},
            idempotency_key=name,  # a request that is sent twice starts one run
            timeout=0,
            as_subflow=True,
        )
        find_run_logger().info("%s: a worker of the pool %s makes it", order.title, pool)
        with cancel_on_error(run.id):
            wait_for_run(run.id, pool, order.title)
    finally:
        with suppress(OSError, TransientError):
            remove_order(store, name)


@contextmanager
def cancel_on_error(run: UUID) -> Iterator[None]:
    """Cancel a run when the block is left by an exception, unless it is over."""
    try:
        yield
    except BaseException:
        with suppress(Exception), get_client(sync_client=True) as client:
            state = client.read_flow_run(run).state
            if state is None or not state.is_final():
                client.set_flow_run_state(run, Cancelling())
        raise


def wait_for_run(run: UUID, pool: str, title: str) -> None:
    """Return once a run is completed; raise what it failed of, TransientError if it was lost."""
    began, pending_since, is_told = time.monotonic(), 0.0, False
    with get_client(sync_client=True) as client:
        while True:
            refuse_when_ending()
            state = read_state(client, run)
            now = time.monotonic()
            if state and state.is_final():
                if not state.is_completed():
                    raise_failure(state, pool, title)
                return
            if state and state.is_scheduled() and now - began > QUEUE_SECONDS and not is_told:
                is_told = True
                find_run_logger().warning("%s: no worker of the pool %s is free", title, pool)
            pending_since = (pending_since or now) if state and state.is_pending() else 0.0
            if pending_since and now - pending_since > PENDING_SECONDS:
                lost: Any = Crashed(message="the worker that took it never started it")
                client.set_flow_run_state(run, lost, force=True)
            time.sleep(POLL_SECONDS)


def read_state(client: Any, run: UUID) -> Any:
    """Return the state of a run; None while the server is away, which stops no worker."""
    try:
        return client.read_flow_run(run).state
    except httpx.HTTPError as away:
        find_run_logger().warning("the Prefect server does not answer: %s", away)
        return None


def raise_failure(state: Any, pool: str, title: str) -> None:
    """Raise why a run on a pool ended, in one line."""
    message = " ".join((state.message or "").split())
    if state.is_crashed():
        raise TransientError(f"{title}: its worker of the pool {pool} was lost: {message}")
    if state.is_cancelled():
        raise PoolRunFailed(title, f"{title}: its run on the pool {pool} was cancelled")
    told = re.sub(r"^Flow run encountered an exception: ", "", message)
    kind, _, cause = told.partition(": ")
    if kind == UserError.__name__:
        raise UserError(cause)
    raise PoolRunFailed(title, cause if kind.isidentifier() and cause else told)
