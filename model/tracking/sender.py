"""Sends requests to MLflow from a thread of its own, in order, and tries again what failed.

MLflow's own asynchronous logging does not do that: it keeps batches in memory and drops one whose
request failed, and runs and artifacts are created by the caller, who waits.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

from model.tracking.mlflow_client import hide_credentials

POLL_SECONDS = 1.0
"""Between two calls of `poll` while there is no request."""
RETRY_SECONDS = 5.0
FINAL_ERROR_CODES = {
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "BAD_REQUEST",
}
"""Answers of MLflow that another attempt would get again."""
PROGRAM_ERRORS = (
    AssertionError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    FileNotFoundError,
)
"""Mistakes of ours: they are logged, and the request is dropped."""
Request = Callable[[], None]

log = logging.getLogger("amazon_electra.tracking")


class Sender:
    """A queue of requests and the thread that works them off."""

    def __init__(self, uri: str, connect: Request, poll: Request) -> None:
        self._uri, self._connect, self._poll = uri, connect, poll
        self._requests: queue.Queue[Request] = queue.Queue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
        self._failures = 0

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> None:
        self._requests.put(request)

    def wait_until_sent(self, seconds: float) -> bool:
        """Wait for the requests that were submitted; return whether they were sent in time."""
        sent = threading.Event()
        self.submit(sent.set)
        return sent.wait(seconds)

    def close(self, seconds: float) -> bool:
        """Stop after the last request; return whether that was in time."""
        self._closing.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                request = self._requests.get(
                    timeout=0.05 if self._closing.is_set() else POLL_SECONDS
                )
            except queue.Empty:
                if self._closing.is_set():
                    return
                if not self.try_request(self._poll):
                    time.sleep(RETRY_SECONDS)
                continue
            while not self.try_request(request):
                time.sleep(RETRY_SECONDS)

    def try_request(self, request: Request) -> bool:
        """Return whether a request is over: it passed, or another attempt would fail as well."""
        try:
            self._connect()
            request()
        except Exception as error:
            self._failures += 1
            level = logging.WARNING if self._failures == 1 else logging.DEBUG
            address, message = hide_credentials(self._uri), hide_credentials(str(error))
            log.log(level, "MLflow at %s: %s", address, message)
            is_final = getattr(error, "error_code", "") in FINAL_ERROR_CODES
            return is_final or isinstance(error, PROGRAM_ERRORS)
        self._failures = 0
        return True
