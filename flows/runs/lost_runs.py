"""Follows a run of a store: its mark, its cancellation, and its end where nobody else reports it.

A run whose process was killed together with its server would stay Running for ever: the next
run finds its mark, and sets it to Crashed. And a run that was cancelled ends also where whoever
started it no longer hears of that: Prefect's runner hears of cancellations over a websocket, and
gives up asking once a server was away for some ten seconds (seen with 3.8.8); `amazon-electra run`
has no runner at all. So the run asks the server itself, and ends where nobody has ended it.
"""

import contextvars
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

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
    """
    is_main = threading.current_thread() is threading.main_thread()
    stop_counting = count_signals(signal.SIGINT, signal.SIGTERM) if is_main else None
    with mark_run(store, run, name), end_children_on_error(), watch_for_cancellation(run):
        yield
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


ASK_SECONDS = 5.0
"""Twice this, and the grace of a trainer, is less than the 30 s in which a cancelled run has to be
over.
"""


@contextmanager
def watch_for_cancellation(run: str) -> Iterator[None]:
    """End this process as Prefect's runner would, if the flow run is cancelled while the block
    lasts: when the server says so a second time, for the runner has had its chance by then.
    """
    over, context = threading.Event(), contextvars.copy_context()

    def ask_server() -> None:
        heard = False
        while not over.wait(ASK_SECONDS):
            try:
                heard, before = is_cancelled(UUID(run), confirmed=heard), heard
            except Exception:  # the server is away: nobody cancels meanwhile
                continue
            if heard and before and not over.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=context.run, args=[ask_server], daemon=True).start()
    try:
        yield
    finally:
        over.set()


def is_cancelled(run: UUID, confirmed: bool) -> bool:
    """Return whether the run is cancelled; one that is confirmed is also reported as over, before
    this process is.
    """
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run).state
        if state is None or not (state.is_cancelling() or state.is_cancelled()):
            return False
        if confirmed and state.is_cancelling():
            client.set_flow_run_state(run, Cancelled(message="the run ended itself"))
        return True
