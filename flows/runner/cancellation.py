"""A run that was cancelled ends, also where whoever started it no longer hears of that.

Prefect's runner hears of cancellations over a websocket, and asks the server once that is lost; a
server that is away for some ten seconds makes it give up asking for good (seen with 3.8.8).
`amazon-electra run` has no runner at all. So the run asks too, and acts where nobody else has.
"""

import contextvars
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

ASK_SECONDS = 5.0
"""Twice this, and the grace of a trainer, is less than the 30 s in which a cancelled run has to be
over.
"""


@contextmanager
def watch_for_cancellation(run: str) -> Iterator[None]:
    """End this process as Prefect's runner would, if the flow run is cancelled while the block
    lasts.
    """
    over = threading.Event()
    context = contextvars.copy_context()
    threading.Thread(
        target=context.run, args=(_poll_server, UUID(run), over), name="cancellation", daemon=True
    ).start()
    try:
        yield
    finally:
        over.set()


def _poll_server(run: UUID, over: threading.Event) -> None:
    """End this process when the server reports the same cancellation a second time: the runner has
    had its chance by then.
    """
    heard = False
    while not over.wait(ASK_SECONDS):
        try:
            heard, before = is_cancelled(run, confirmed=heard), heard
        except Exception:  # the server is away: nobody cancels meanwhile
            continue
        if heard and before and not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            return


def is_cancelled(run: UUID, confirmed: bool) -> bool:
    """Return whether the run is cancelled; one that is confirmed is also reported as over, before
    this process is.
    """
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelled

    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run).state
        if state is None or not (state.is_cancelling() or state.is_cancelled()):
            return False
        if confirmed and state.is_cancelling():
            client.set_flow_run_state(run, Cancelled(message="the run ended itself"))
        return True
