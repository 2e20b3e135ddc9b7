"""How far a job is: a bar in a terminal, plain lines in a log, JSON lines for the process that started it.

Twin of beam_jobs/progress.py: neither package may import the other. All of it goes to stderr. With the environment
variable AMAZON_ELECTRA_PROGRESS=json each report is one line `PROGRESS {…}` at most once a second, always the first
and the last; otherwise a rich bar where stderr is a terminal, else a plain line at most every five seconds.
"""

import json
import os
import sys
import time
from types import TracebackType
from typing import Any, Protocol, Self

SECONDS_BETWEEN_JSON_LINES = 1.0
SECONDS_BETWEEN_PLAIN_LINES = 5.0


class Display(Protocol):
    """Where reports go."""

    seconds_between: float

    def show(self, report: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """One line a program can read."""

    seconds_between = SECONDS_BETWEEN_JSON_LINES

    def show(self, report: dict[str, Any]) -> None:
        print("PROGRESS " + json.dumps(report, ensure_ascii=False), file=sys.stderr, flush=True)

    def close(self) -> None: ...


class PlainLines:
    """One line a person can read in a log."""

    seconds_between = SECONDS_BETWEEN_PLAIN_LINES

    def show(self, report: dict[str, Any]) -> None:
        of_total = f" of {report['total']:,}" if report["total"] is not None else ""
        left = f", {_clock(report['seconds_left'])} left" if report["seconds_left"] is not None else ""
        line = f"{report['description']}: {report['done']:,}{of_total} {report['unit']}, {report['rate']:,.4g}/s{left}"
        print(line + _extra(report), file=sys.stderr, flush=True)

    def close(self) -> None: ...


class Bar:
    """A rich bar. Its constructor raises ImportError where rich is not installed."""

    seconds_between = 0.1

    def __init__(self, description: str, total: int | None, unit: str) -> None:
        from rich import progress as rich_progress
        from rich.console import Console

        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + unit if total else unit),
            rich_progress.TextColumn("{task.fields[rate]:,.4g}/s"),
            rich_progress.TimeRemainingColumn(),
            rich_progress.TextColumn("{task.fields[extra]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(description, total=total, rate=0.0, extra="")
        self._bar.start()

    def show(self, report: dict[str, Any]) -> None:
        self._bar.update(self._task, completed=report["done"], rate=report["rate"], extra=_extra(report).strip(", "))

    def close(self) -> None:
        self._bar.stop()


class Progress:
    """Counts units of work done; `update` may be called as often as one likes."""

    def __init__(self, display: Display, total: int | None, unit: str, description: str, done: int) -> None:
        self._display, self._total, self._unit, self._description = display, total, unit, description
        self._done = self._done_at_start = done
        self._fields: dict[str, Any] = {}
        self._started = time.monotonic()
        self._shown_at = float("-inf")

    def update(self, done: int, **fields: Any) -> None:
        """`done` units are finished in all; the fields (loss, accuracy …) are shown beside them."""
        self._done = done
        self._fields.update(fields)
        if time.monotonic() - self._shown_at >= self._display.seconds_between:
            self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        seconds = self._shown_at - self._started
        rate = (self._done - self._done_at_start) / seconds if seconds > 0 else 0.0
        known = rate > 0 and self._total is not None
        report = {
            "description": self._description,
            "done": self._done,
            "total": self._total,
            "unit": self._unit,
            "rate": float(f"{rate:.4g}"),
            "seconds_left": round((self._total - self._done) / rate) if known and self._total is not None else None,
        }
        self._display.show(report | self._fields)

    def __enter__(self) -> Self:
        self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show()
        self._display.close()


def progress(total: int | None, unit: str, description: str, done: int = 0) -> Progress:
    """`with progress(2000, "steps", "pre-training") as p: p.update(120, loss=0.5)`.

    `done` is what a resumed job had already done; it does not count towards the rate.
    """
    return Progress(_display(description, total, unit), total, unit, description, done)


def _display(description: str, total: int | None, unit: str) -> Display:
    if os.environ.get("AMAZON_ELECTRA_PROGRESS") == "json":
        return JsonLines()
    if sys.stderr.isatty():
        try:
            return Bar(description, total, unit)
        except ImportError:
            return PlainLines()
    return PlainLines()


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"


def _extra(report: dict[str, Any]) -> str:
    """What a job added to the six fields every report has, as `, loss 0.5`."""
    own = list(report.items())[6:]
    return "".join(f", {name} {value:.4g}" if isinstance(value, float) else f", {name} {value}" for name, value in own)
