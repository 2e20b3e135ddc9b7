"""Has a worker of a pool make stages: starts a run of the deployment `run-stage-POOL`, a subflow of
the task that calls, and waits for it. Where the same pool makes what comes next, that run stays and
takes further orders: a process of its own for each stage would cost seconds.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.context import TaskRunContext
from prefect.deployments import run_deployment
from prefect.runtime import flow_run
from prefect.states import Cancelling, Crashed

from beam_jobs.job.errors import NETWORK_ERRORS, TransientError, UserError
from flows.runner.pools.messages import choose_pause, has_answer, post_order
from flows.runner.pools.order import Order, remove_order, write_order
from flows.runner.pools.worker_watch import WorkerWatch
from flows.runner.processes import JobFailed, refuse_when_ending
from flows.runner.run_log import find_run_logger
from flows.runner.store import Store

LOSSES = 10
"""So many workers in turn may be lost with an order before that is a failure, tried again later."""


class PoolRunFailed(JobFailed):
    """A worker of a pool could not make a stage; another attempt would fail as well."""

    def __init__(self, name: str, cause: str):
        RuntimeError.__init__(self, cause)
        self.name, self.code, self.cause, self.log, self.transient = name, 1, cause, Path(), False


def name_deployment(pool: str) -> str:
    """Return the deployment by which a worker of the pool makes stages."""
    return f"run-stage/run-stage-{pool}"


@dataclass
class WorkerRun:
    """A worker's run that makes stages of this run, and the number of its last order."""

    id: UUID
    number: int = 1


def make_in_pool(store: Store, pool: str, order: Order, staying: dict[str, WorkerRun]) -> None:
    """Return once a worker of the pool has made what the order says; one that is lost is replaced.

    `staying` are the workers' runs, by pool, that wait for another order.
    """
    task = TaskRunContext.get()
    attempt = task.task_run.run_count if task else 0
    first = order.stages[0].fingerprint if order.chains else "check"
    name = f"{flow_run.id}-{flow_run.run_count}-{pool}-{first}-{attempt}"
    write_order(store, name, order)
    try:
        worker = staying.pop(pool, None)
        if not worker or not has_made_another(worker, name, pool, order):
            worker = make_in_new_run(store, name, pool, order)
        if order.stays:
            staying[pool] = worker
    finally:
        with suppress(OSError, TransientError):
            remove_order(store, name)


def make_in_new_run(store: Store, name: str, pool: str, order: Order) -> WorkerRun:
    """Return the worker's run that has made an order. Where one is lost, another is started at
    once, for whichever worker is free: the store has what the lost one made.
    """
    for losses in range(LOSSES + 1):
        worker = start_run(store, name, losses, pool, order)
        if wait_for_run(worker, pool, order):
            return worker
    raise TransientError(f"{order.title}: {losses + 1} workers of the pool {pool} were lost")


def start_run(store: Store, name: str, losses: int, pool: str, order: Order) -> WorkerRun:
    """Start a run that a worker of the pool takes."""
    run: Any = run_deployment(
        name_deployment(pool),
        parameters={"order": name, "title": order.title, "store": store.address},
        idempotency_key=f"{name}-{losses}",  # a request that is sent twice starts one run
        timeout=0,
        as_subflow=True,
    )
    find_run_logger().info("%s: a worker of the pool %s makes it", order.title, pool)
    return WorkerRun(run.id)


def has_made_another(worker: WorkerRun, name: str, pool: str, order: Order) -> bool:
    """Return whether a worker's run that stayed has made this order too; it may have ended when the
    order came.
    """
    worker.number += 1
    with cancel_on_error(worker.id), get_client(sync_client=True) as client:
        post_order(client, worker.id, worker.number, name)
    find_run_logger().info("%s: the same worker of the pool %s makes it", order.title, pool)
    return wait_for_run(worker, pool, order)


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


def wait_for_run(worker: WorkerRun, pool: str, order: Order) -> bool:
    """Return whether a worker's run has made its last order; it has not where it was over before,
    or was lost. Raise what it failed of.
    """
    watch, began = WorkerWatch(pool, order.title), time.monotonic()
    with cancel_on_error(worker.id), get_client(sync_client=True) as client:
        while True:
            refuse_when_ending()
            try:
                if (is_made := look_at_run(client, worker, pool, order, watch)) is not None:
                    return is_made
            except httpx.HTTPError as away:  # that stops no worker
                find_run_logger().warning("the Prefect server does not answer: %s", away)
            time.sleep(choose_pause(time.monotonic() - began))


def look_at_run(
    client: Any, worker: WorkerRun, pool: str, order: Order, watch: WorkerWatch
) -> bool | None:
    """Return what `wait_for_run` does, or None while it is not known yet."""
    run = client.read_flow_run(worker.id)
    if (order.stays or run.state.is_completed()) and has_answer(client, worker.id, worker.number):
        return True
    if run.state.is_completed():
        return worker.number == 1
    if run.state.is_crashed() and run.start_time:
        loss = f"its worker of the pool {pool} was lost: {run.state.message}"
    elif run.state.is_final():
        raise_failure(run.state, pool, order.title)
    elif loss := watch.find_loss(client, run):
        client.set_flow_run_state(worker.id, Crashed(message=loss), force=True)
    if not loss:
        return None
    find_run_logger().warning("%s: %s; another one makes it", order.title, loss)
    return False


def raise_failure(state: Any, pool: str, title: str) -> NoReturn:
    """Raise why a run on a pool ended, in one line."""
    message = " ".join((state.message or "").split())
    if state.is_crashed():
        raise TransientError(f"{title}: its worker of the pool {pool} was lost: {message}")
    if state.is_cancelled():
        raise PoolRunFailed(title, f"{title}: its run on the pool {pool} was cancelled")
    told = re.sub(r"^Flow run encountered an exception: ", "", message)
    kind, _, cause = told.partition(":")
    cause = cause.strip()
    if kind == UserError.__name__:
        raise UserError(cause)
    if kind in {TransientError.__name__, *NETWORK_ERRORS}:
        raise TransientError(f"{title}: its worker of the pool {pool}: {cause or kind}")
    raise PoolRunFailed(title, cause if kind.isidentifier() and cause else told)
