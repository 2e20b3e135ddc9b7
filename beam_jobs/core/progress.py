"""Progress of a job on stderr: a plain line at most every five seconds, always the first and the
last. With AMAZON_ELECTRA_PROGRESS=json each is one line `PROGRESS {…}` for the process above, at
most once a second; with `none` nothing is reported.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Self

from amazon_electra.beam_jobs.core.terminal import print


class Progress:
    """Counts towards a total: `with Progress(2000, "steps", "training") as p: p.update(120,
    loss=0.5)`. `done` is what an interrupted run had finished (default: the first update's).
    """

    def __init__(
        self, total: int | None, unit: str, description: str, done: int | None = None
    ) -> None:
        self.total = total
        self._unit, self._description = unit, description
        self._form = os.environ.get("AMAZON_ELECTRA_PROGRESS", "")
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
        if time.monotonic() - self._shown_at >= (1 if self._form == "json" else 5):
            self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        seconds = self._shown_at - self._started
        rate = (self._done - (self._done_at_start or 0)) / seconds if seconds > 0 else 0.0
        left = None if self.total is None or rate <= 0 else (self.total - self._done) / rate
        report = {
            "description": self._description,
            "done": self._done,
            "total": self.total,
            "unit": self._unit,
            "rate": float(f"{rate:.4g}"),
            "seconds_left": None if left is None else round(left),
            **self._fields,
        }
        line = f"{self._description}: {format_report(report)}"
        if self._form == "json":
            line = "PROGRESS " + json.dumps(report, ensure_ascii=False)
        if self._form != "none":  # another process reports
            print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._show()


def announce_job(address: str) -> None:
    """Report the page on which an engine shows the job, for the process that follows this one."""
    print(f"JOB {address}", file=sys.stderr, flush=True)


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_report(report: Mapping[str, Any], with_time_left: bool = True) -> str:
    """Return a report as text, for example `120 of 2,000 steps, 3.5/s, 8:57 left, loss 0.5`."""
    of_total = f" of {report['total']:,}" if report["total"] else ""
    shown = f"{report['done']:,}{of_total} {report['unit']}"
    shown += f", {report['rate']:,.4g}/s" if report["rate"] else ""
    if with_time_left and (seconds := report["seconds_left"]) is not None:
        hours, rest = divmod(seconds, 3600)
        clock = f"{hours}:{rest // 60:02}" if hours else f"{rest // 60}"
        shown += f", {clock}:{rest % 60:02} left"
    for name, value in list(report.items())[6:]:
        shown += f", {name} {value:.4g}" if isinstance(value, float) else f", {name} {value}"
    return shown
