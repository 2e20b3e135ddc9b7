"""How far a job is: a bar in a terminal, plain lines elsewhere, JSON lines for the process that started us.

`model/progress.py` is its twin: neither package may import the other.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

PLAIN_SECONDS = 5.0
JSON_SECONDS = 1.0


class Display(Protocol):
    def show(self, state: dict[str, Any], last: bool) -> None: ...


class Progress:
    """Counts towards a total; `update` may be called as often as one likes."""

    def __init__(self, total: int, unit: str, description: str, display: Display) -> None:
        self.total, self.unit, self.description = total, unit, description
        self._display = display
        self._started = time.monotonic()
        self._first: int | None = None
        self.state = self._describe(0, {})

    def update(self, done: int, **fields: Any) -> None:
        if self._first is None:  # what an earlier, interrupted run had done does not count towards the rate
            self._first = done
        self.state = self._describe(done, fields)
        self._display.show(self.state, last=False)

    def close(self) -> None:
        self._display.show(self.state, last=True)

    def _describe(self, done: int, fields: dict[str, Any]) -> dict[str, Any]:
        seconds = max(time.monotonic() - self._started, 1e-6)
        rate = (done - (self._first or 0)) / seconds
        left = round((self.total - done) / rate, 1) if rate > 0 else None
        state = {"description": self.description, "done": done, "total": self.total, "unit": self.unit}
        return state | {"rate": round(rate, 3), "seconds_left": left} | fields


class JsonLines:
    def __init__(self) -> None:
        self._next = 0.0

    def show(self, state: dict[str, Any], last: bool) -> None:
        if last or time.monotonic() >= self._next:
            self._next = time.monotonic() + JSON_SECONDS
            print("PROGRESS " + json.dumps(state), file=sys.stderr, flush=True)


class PlainLines:
    def __init__(self) -> None:
        self._next = time.monotonic() + PLAIN_SECONDS

    def show(self, state: dict[str, Any], last: bool) -> None:
        if last or time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_SECONDS
            print(as_text(state), file=sys.stderr, flush=True)


class Bar:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(console=Console(stderr=True), transient=False)
        self._bar.start()
        self._task = self._bar.add_task("")

    def show(self, state: dict[str, Any], last: bool) -> None:
        text = as_text(state)
        self._bar.update(self._task, description=text, completed=state["done"], total=state["total"] or None)
        if last:
            self._bar.stop()


def as_text(state: dict[str, Any]) -> str:
    """`pre-training 120/2000 steps, 5.1 steps/s, 368 s left, loss 3.2`"""
    known = {"description", "done", "total", "unit", "rate", "seconds_left"}
    parts = [f"{state['description']} {state['done']}/{state['total']} {state['unit']}"]
    if state["rate"]:
        parts.append(f"{state['rate']:.3g} {state['unit']}/s")
    if state["seconds_left"]:
        parts.append(f"{state['seconds_left']:.0f} s left")
    return ", ".join(parts + [f"{k} {v}" for k, v in state.items() if k not in known])


@contextmanager
def progress(total: int, unit: str, description: str) -> Iterator[Progress]:
    display: Display
    if os.environ.get("AMAZON_ELECTRA_PROGRESS") == "json":
        display = JsonLines()
    elif sys.stderr.isatty():
        display = Bar()
    else:
        display = PlainLines()
    counter = Progress(total, unit, description, display)
    display.show(counter.state, last=False)
    try:
        yield counter
    finally:
        counter.close()
