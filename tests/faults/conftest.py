"""Lets the tests interrupt what they start; in a background shell a process ignores it."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _interrupts_arrive() -> Iterator[None]:
    """Handle SIGINT, as a process passes on that it ignores a signal, but not its handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
