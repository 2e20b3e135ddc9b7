"""A process that `amazon-electra up` keeps alive.

It is started again when it died, or lives but gives no answer.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flows.runner.processes import Child
from flows.servers import health

MAX_WAIT_SECONDS = 60.0
"""Longest time between two starts of a process that dies again and again."""
FORGET_SECONDS = 600.0
"""A death longer ago no longer delays the next start."""
CHECK_SECONDS = 10.0
MAX_FAILED_CHECKS = 6
"""After so many checks in a row without an answer a process is taken to hang."""
MAX_LOG_BYTES = 20_000_000
"""A longer log begins anew; the one before is kept beside it, as NAME.log.1."""


@dataclass
class Service:
    """How a process is started and checked, and how it fared."""

    name: str
    start_process: Callable[[], Child]
    is_well: Callable[[], bool]
    process: Child | None = None
    deaths: list[float] = field(default_factory=list)
    restart_at: float | None = None
    check_at: float = 0.0
    failed_checks: int = 0

    def start(self) -> None:
        """Start the process and wait until it is well."""
        self.process = self.start_process()
        health.wait_until_healthy(self.name, self.process, self.is_well)

    def watch(self) -> None:
        """Start the process again if it died or hangs, ever later if it does so again.

        Whatever runs meanwhile does without it.
        """
        if self.process is None:
            return
        if not self.process.has_ended():
            self._end_if_hung(self.process)
            return
        now = time.monotonic()
        if self.restart_at is None:
            self.restart_at = now + self._schedule_restart(self.process, now)
        if now >= self.restart_at:
            self.process, self.restart_at = self.start_process(), None
            self.failed_checks, self.check_at = 0, now + health.START_SECONDS

    def _schedule_restart(self, process: Child, now: float) -> float:
        """Return the seconds until the next start, and print why there is one."""
        self.deaths = [at for at in self.deaths if now - at < FORGET_SECONDS] + [now]
        wait = min(MAX_WAIT_SECONDS, 2.0 ** (len(self.deaths) - 1) - 1)
        cause = health.explain_exit(process)
        print_message(f"{self.name} ended: {cause}; starting it again in {wait:.0f} s")
        return wait

    def _end_if_hung(self, process: Child) -> None:
        """End a process that has not answered for a while; a restarted one has time to start."""
        trim_log(process.log)
        now = time.monotonic()
        if now < self.check_at:
            return
        self.check_at = now + CHECK_SECONDS
        self.failed_checks = 0 if self.is_well() else self.failed_checks + 1
        if self.failed_checks >= MAX_FAILED_CHECKS:
            print_message(f"{self.name} has not answered {MAX_FAILED_CHECKS} times; it is ended")
            process.end()

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process:
            self.process.end()


def trim_log(log: Path) -> None:
    """Copy and empty a log that is long.

    It cannot be renamed: whoever writes to it holds it open and appends.
    """
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def print_message(text: str) -> None:
    """Print a line to stderr at once."""
    print(text, file=sys.stderr, flush=True)
