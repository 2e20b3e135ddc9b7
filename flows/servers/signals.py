"""What Ctrl-C and SIGTERM do to a process that runs a graph or servers. Main thread only."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amazon_electra.flows.runner.processes import Terminated

LAST_SECONDS = 10.0  # from the second signal to the end of a process that does not end by itself


def interrupt_on_signals(*signals: int) -> None:
    """Raise KeyboardInterrupt for Ctrl-C, also in a process that a shell started in the background,
    and Terminated for these signals.
    """

    def raise_terminated(number: int, _: Any) -> None:
        raise Terminated

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signals:
        signal.signal(number, raise_terminated)


@contextmanager
def end_at_second_signal() -> Iterator[None]:
    """Let a second SIGINT or SIGTERM end this process within `LAST_SECONDS`, whatever it waits for;
    its jobs end with it. After an error this goes on: the process is ending.

    No handler is replaced: a run that Prefect cancels is Cancelled, and not Crashed, only while
    Prefect's own handler is in place.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def count() -> None:
        received = 0
        with reader, writer:
            while number := reader.recv(1):
                received += number[0] in (signal.SIGINT, signal.SIGTERM)
                if received == 2:
                    time.sleep(LAST_SECONDS)
                    os._exit(128 + number[0])

    threading.Thread(target=count, daemon=True).start()
    yield
    signal.set_wakeup_fd(before)
    writer.shutdown(socket.SHUT_WR)
