"""Finds runs whose process was killed together with its server: nobody told Prefect that they are
over, and they would stay Running for ever.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from beam_jobs.core.locks import exclusive_lock, try_lock
from flows.runner.cancellation import watch_for_cancellation
from flows.runner.processes import end_children_on_error
from flows.runner.run_log import find_run_logger
from flows.store.store import Store
from flows.store.usage import RUN_MARK, list_run_marks


@contextmanager
def follow_run(store: Store, run: str, name: str = "") -> Iterator[None]:
    """Mark a run while the block lasts, watch for its cancellation, end its jobs on an error."""
    with mark_run(store, run, name), end_children_on_error(), watch_for_cancellation(run):
        yield


@contextmanager
def mark_run(store: Store, run: str, name: str = "") -> Iterator[None]:
    """Hold the mark of a run, which has its name, while the block lasts; it stays only if the
    process is killed.
    """
    mark = store.root / "runs" / run / RUN_MARK
    try:
        with exclusive_lock(mark):
            mark.write_text(name)
            yield
    finally:
        mark.unlink(missing_ok=True)


def crash_lost_runs(store: Store) -> list[str]:
    """Set the runs of this store whose process is gone to Crashed; return their ids."""
    lost = []
    for mark in list_run_marks(store):
        with mark.open("a") as file:
            if try_lock(file) and crash_run(mark.parent.name):
                lost.append(mark.parent.name)
                mark.unlink(missing_ok=True)
    return lost


def crash_run(run: str) -> bool:
    """Set a run to Crashed unless it is over; return whether Prefect was asked with success."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run)).state
            if state and (state.is_running() or state.is_cancelling()):
                crashed: Any = Crashed(message="its process was killed together with its server")
                client.set_flow_run_state(UUID(run), crashed, force=True)
                find_run_logger().warning("the run %s was killed: it is Crashed now", run)
    except (ObjectNotFound, ValueError):
        return True
    except Exception as away:
        find_run_logger().warning("the run %s could not be looked up: %s", run, away)
        return False
    return True
