"""A process that `amazon-electra up` keeps alive: started again when it died, or lives but gives no answer."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flows import servers
from flows.processes import Child

LONGEST_WAIT_SECONDS = 60.0
"""Between two starts of a process that dies again and again."""
FORGOTTEN_SECONDS = 600.0
"""After so long a death is no longer held against a process."""
CHECK_SECONDS = 10.0
SILENCES = 6
"""So many checks without an answer, one after the other, and a process is taken to hang."""
LOG_BYTES = 20_000_000
"""A log that is longer begins anew; the one before is kept beside it, as NAME.log.1."""


@dataclass
class Service:
    """How it is started, and how one sees that it is well."""

    name: str
    start: Callable[[], Child]
    well: Callable[[], bool]
    process: Child | None = None
    deaths: list[float] = field(default_factory=list)
    again_at: float | None = None
    check_at: float = 0.0
    silences: int = 0

    def begin(self) -> None:
        """Starts it and waits until it is well."""
        self.process = self.start()
        servers.wait_until_well(self.name, self.process, self.well)

    def watch(self) -> None:
        """Starts it again if it died or hangs, ever later if it does so again: what runs meanwhile does without it."""
        if self.process is None:
            return
        if not self.process.over():
            self._check(self.process)
            return
        now = time.monotonic()
        if self.again_at is None:
            self.deaths = [at for at in self.deaths if now - at < FORGOTTEN_SECONDS] + [now]
            wait = min(LONGEST_WAIT_SECONDS, 2.0 ** (len(self.deaths) - 1) - 1)
            self.again_at = now + wait
            say(f"{self.name} ended: {servers.explained(self.process)}; starting it again in {wait:.0f} s")
        if now >= self.again_at:
            self.process, self.again_at = self.start(), None
            self.silences, self.check_at = 0, now + servers.START_SECONDS

    def _check(self, process: Child) -> None:
        """Ends a process that has not answered for a while; one that was started again has time to start."""
        trim(process.log)
        now = time.monotonic()
        if now < self.check_at:
            return
        self.check_at = now + CHECK_SECONDS
        self.silences = 0 if self.well() else self.silences + 1
        if self.silences >= SILENCES:
            say(f"{self.name} has not answered {SILENCES} times; it is ended")
            process.end()

    def end(self) -> None:
        if self.process:
            self.process.end()


def trim(log: Path) -> None:
    """Whoever writes to it holds it open and appends, so it is copied and emptied, not renamed."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
