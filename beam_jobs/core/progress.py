"""Progress of a job on stderr: a bar in a terminal, lines in a log, JSON lines for the process
above.

With AMAZON_ELECTRA_PROGRESS=json each report is one line `PROGRESS {…}`, at most once a second,
always the first and the last; with `none` nothing is reported; else a rich bar where stderr is a
terminal, or a plain line at most every five seconds.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

from amazon_electra.beam_jobs.core.terminal import escape_controls, print


def do_nothing(*_: Any) -> None: ...


class ProgressBars:
    """Rich bars, one per task, on a rich `console`; ImportError where rich is not installed."""

    def __init__(self, console: Any = None, transient: bool = False) -> None:
        from rich import progress as rich_progress
        from rich.console import Console

        self._bars = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.fields[note]}", markup=False),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=console or Console(stderr=True, emoji=False),
            transient=transient,
        )
        self._tasks: dict[str, rich_progress.TaskID] = {}

    def start(self) -> None:
        self._bars.start()

    def add(self, name: str, description: str) -> None:
        """Add a bar that is known by `name`."""
        self._tasks[name] = self._bars.add_task(escape_controls(description), total=None, note="")

    def show(self, name: str, description: str, report: Mapping[str, Any]) -> None:
        """Move a bar to what a report says."""
        self._bars.update(
            self._tasks[name],
            description=escape_controls(description),
            completed=report["done"],
            total=report["total"] or None,
            note=escape_controls(format_report(report, with_time_left=False)),
        )

    def remove(self, name: str) -> None:
        """Remove a bar, if there is one."""
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))

    def close(self) -> None:
        self._bars.stop()


class Progress:
    """Counts towards a total: `with Progress(2000, "steps", "training") as p: p.update(120,
    loss=0.5)`.

    `done` is what an interrupted run had finished (default: the first update's); no part of the
    rate.
    """

    def __init__(
        self, total: int | None, unit: str, description: str, done: int | None = None
    ) -> None:
        self.total = total
        self._unit, self._description = unit, description
        self._seconds_between, self._display, self._close = _choose_display(description)
        self._done, self._done_at_start = done or 0, done
        self._fields: dict[str, Any] = {}
        self._started = time.monotonic()
        self._shown_at = float("-inf")

    def update(self, done: int, **fields: Any) -> None:
        """Show that `done` units are finished in all, with further fields (loss, accuracy …)."""
        if self._done_at_start is None:
            self._done_at_start = done
        self._done = done
        self._fields.update(fields)
        if time.monotonic() - self._shown_at >= self._seconds_between:
            self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        seconds = self._shown_at - self._started
        since_start = self._done - (self._done_at_start or 0)
        rate = since_start / seconds if seconds > 0 else 0.0
        left = None if self.total is None or rate <= 0 else (self.total - self._done) / rate
        report = {
            "description": self._description,
            "done": self._done,
            "total": self.total,
            "unit": self._unit,
            "rate": float(f"{rate:.4g}"),
            "seconds_left": None if left is None else round(left),
        }
        self._display(report | self._fields)

    def __enter__(self) -> Self:
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._show()
        self._close()


def _choose_display(
    description: str,
) -> tuple[float, Callable[[dict[str, Any]], None], Callable[[], None]]:
    """Return the seconds between two reports, what shows one, and what is to be called last."""

    def print_json(report: dict[str, Any]) -> None:
        print("PROGRESS " + json.dumps(report, ensure_ascii=False), file=sys.stderr, flush=True)

    def print_plain(report: dict[str, Any]) -> None:
        print(f"{description}: {format_report(report)}", file=sys.stderr, flush=True)

    chosen = os.environ.get("AMAZON_ELECTRA_PROGRESS")
    if chosen == "none":  # another process reports
        return float("inf"), do_nothing, do_nothing
    if chosen == "json":
        return 1.0, print_json, do_nothing
    if sys.stderr.isatty():
        with suppress(ImportError):  # rich is not installed
            bars = ProgressBars()
            bars.add("job", description)
            bars.start()
            return 0.1, lambda report: bars.show("job", description, report), bars.close
    return 5.0, print_plain, do_nothing


def announce_job(address: str) -> None:
    """Report the page on which an engine shows the job, for the process that follows this one."""
    print(f"JOB {address}", file=sys.stderr, flush=True)


def format_count(number: int, noun: str) -> str:
    """Return `1 file` or `2,000 files`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_report(report: Mapping[str, Any], with_time_left: bool = True) -> str:
    """Return a report as text, for example `120 of 2,000 steps, 3.5/s, 8:57 left, loss 0.5`."""
    of_total = f" of {report['total']:,}" if report["total"] else ""
    seconds = report["seconds_left"] if with_time_left else None
    left = ""
    if seconds is not None:
        hours, rest = divmod(seconds, 3600)
        clock = f"{hours}:{rest // 60:02}" if hours else f"{rest // 60}"
        left = f", {clock}:{rest % 60:02} left"
    extra = "".join(
        f", {name} {value:.4g}" if isinstance(value, float) else f", {name} {value}"
        for name, value in list(report.items())[6:]
    )
    return f"{report['done']:,}{of_total} {report['unit']}, {report['rate']:,.4g}/s{left}{extra}"
