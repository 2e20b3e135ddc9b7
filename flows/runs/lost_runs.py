"""Follows a run of a store: its mark, and its end where Prefect does not hear of it.

- A run whose process was killed together with its server would stay Running for ever: the next one
  finds its mark, and sets it to Crashed.
- Prefect's runner hears of a cancellation over a websocket, and gives up once a server was away for
  some ten seconds (seen with 3.8.8); `amazon-electra run` has no runner at all. So the run asks the
  server itself.
- A worker that is stopped hands its runs back: another worker of the pool continues them.
- A server whose clock jumps, or a computer that slept, takes a living run for lost. It says that it
  lives.
"""

import contextvars
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import Abort, ObjectNotFound, TerminationSignal
from prefect.states import AwaitingRetry, Cancelled, Crashed, Running

from amazon_electra.beam_jobs.core.locks import exclusive_lock, try_lock
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.processes import end_children_on_error
from amazon_electra.flows.servers.health import count_signals
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import RUN_MARK, list_run_marks


@contextmanager
def follow_run(store: Store, run: str, name: str = "") -> Iterator[None]:
    """Mark a run while the block lasts, watch for its cancellation, end its jobs on an error, and
    the process at a second signal: at the first one Prefect waits minutes for a server that is
    away.

    Raises Prefect's Abort, at which its engine leaves the state at the server as it is, once the
    run is cancelled or another worker is to continue it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    stop_counting = count_signals(signal.SIGINT, signal.SIGTERM) if is_main else None
    try:
        with (
            mark_run(store, run, name),
            end_children_on_error(),
            watch_for_cancellation(run) as is_cancelled,
        ):
            yield
    except TerminationSignal:
        if is_cancelled.is_set() or reschedule(run):
            raise Abort(f"the run {run} was ended") from None
        raise
    if stop_counting:  # not where it is ending by a signal
        stop_counting()


@contextmanager
def mark_run(store: Store, run: str, name: str = "") -> Iterator[None]:
    """Hold the mark of a run, which has its name, while the block lasts; it stays only if the
    process is killed.
    """
    mark = store.root / "runs" / run / RUN_MARK
    try:
        with exclusive_lock(mark):
            mark.write_text(name, encoding="utf-8")
            yield
    finally:
        mark.unlink(missing_ok=True)


def crash_lost_runs(store: Store) -> list[str]:
    """End the runs of this store whose process is gone; return their ids."""
    lost = []
    for mark in list_run_marks(store):
        with mark.open("a", encoding="utf-8") as file:
            if try_lock(file) and crash_run(mark.parent.name):
                lost.append(mark.parent.name)
                mark.unlink(missing_ok=True)
    return lost


def crash_run(run: str) -> bool:
    """Set a run whose process is gone to Cancelled where that was asked for, to Crashed unless it
    is over; return whether Prefect was asked with success.
    """
    try:
        with get_client(sync_client=True) as client:
            before = client.read_flow_run(UUID(run)).state
            is_over = before and (before.is_final() or before.is_scheduled() or before.is_paused())
            if before is None or is_over:
                return True
            lost: Any = Crashed(message="its process was killed; start it again")
            state = Cancelled() if before.is_cancelling() else lost
            client.set_flow_run_state(UUID(run), state, force=True)
            find_run_logger().warning("the run %s was killed: it is %s now", run, state.name)
    except (ObjectNotFound, ValueError):
        return True
    except Exception as away:
        find_run_logger().warning("the run %s could not be looked up: %s", run, away)
        return False
    return True


RESCHEDULE_VARIABLE = "AMAZON_ELECTRA_RESCHEDULE"
"""Environment variable by which a worker lets its runs be continued by another one."""
RESCHEDULE_SECONDS = 45
"""Until a run may begin again: a worker that is being stopped is gone by then."""


def reschedule(run: str) -> bool:
    """Hand a run of a pool back, whose worker is being stopped; return whether that was done."""
    if not os.environ.get(RESCHEDULE_VARIABLE):
        return False
    later: Any = AwaitingRetry(
        scheduled_time=datetime.now(UTC) + timedelta(seconds=RESCHEDULE_SECONDS),
        message="its worker was stopped; another one continues",
    )
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run)).state
            if state is None or state.is_final() or state.is_cancelling():
                return False
            client.set_flow_run_state(UUID(run), later, force=True)
    except Exception as away:
        find_run_logger().warning("the run %s could not be handed back: %s", run, away)
        return False
    return True


ASK_SECONDS = 5.0
"""Twice this, and the grace of a trainer, is less than the 30 s in which a cancelled run has to be
over.
"""


@contextmanager
def watch_for_cancellation(run: str) -> Iterator[threading.Event]:
    """End this process as Prefect's runner would, if the flow run is cancelled while the block
    lasts: when the server says so a second time, for the runner has had its chance by then. The
    event that is yielded is set then, and the run Cancelled.
    """
    over, cancelled, context = threading.Event(), threading.Event(), contextvars.copy_context()

    def ask_server() -> None:
        before = False
        while not over.wait(ASK_SECONDS):
            try:
                with get_client(sync_client=True) as client:
                    state = client.read_flow_run(UUID(run)).state
                    if state is None or over.is_set():
                        continue
                    heard = state.is_cancelling() or state.is_cancelled()
                    if state.is_crashed():
                        lives: Any = Running(message="it was taken for lost, and lives")
                        client.set_flow_run_state(UUID(run), lives, force=True)
                    if heard and before:
                        if state.is_cancelling():
                            end: Any = Cancelled(message="the run ended itself")
                            client.set_flow_run_state(UUID(run), end)
                        cancelled.set()
                        os.kill(os.getpid(), signal.SIGTERM)
                        return
            except Exception:  # the server is away: nobody cancels meanwhile
                continue
            before = heard

    threading.Thread(target=context.run, args=[ask_server], daemon=True).start()
    try:
        yield cancelled
    finally:
        over.set()
