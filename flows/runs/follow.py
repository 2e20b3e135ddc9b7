"""Follows a run of a store: its mark, its cancellation, and its end."""

import contextvars
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import Abort, TerminationSignal
from prefect.states import Cancelled

from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import mark_run

ASK_SECONDS = 10.0
"""This, and the grace of a trainer, is less than the 30 s in which a cancelled run has to end."""


@contextmanager
def follow_run(store: Store, run: str, name: str = "") -> Iterator[None]:
    """Mark a run while the block lasts, and watch for its cancellation.

    Raises Prefect's Abort, at which its engine leaves the state at the server as it is, once the
    run is cancelled.
    """
    over, cancelled = threading.Event(), threading.Event()
    watch, context = (watch_for_cancellation, run, over, cancelled), contextvars.copy_context()
    try:
        with mark_run(store, run, name):
            threading.Thread(target=context.run, args=watch, daemon=True).start()
            try:
                yield
            finally:
                over.set()
    except TerminationSignal:
        if cancelled.is_set():
            raise Abort(f"the run {run} was cancelled") from None
        raise


def watch_for_cancellation(run: str, over: threading.Event, cancelled: threading.Event) -> None:
    """Set `cancelled`, the state at the server, and end this process as Prefect's runner would, if
    the run is cancelled before it is over.

    Prefect's runner hears of it at once, but no more after its server was away for half a minute;
    `amazon-electra run` has no runner.
    """
    while not over.wait(ASK_SECONDS):
        with suppress(Exception), get_client(sync_client=True) as client:  # away: ask again
            state = client.read_flow_run(UUID(run)).state
            if state and state.is_cancelling() and not over.is_set():
                ended: Any = Cancelled(message="the run ended itself")
                client.set_flow_run_state(UUID(run), ended)
                cancelled.set()
                os.kill(os.getpid(), signal.SIGTERM)
                return
