"""Lets one host at a time make a stage: a lease beside its folder in the bucket.

A lease is an object with a number, `<folder>.lease-000001`; the highest number counts. It is
created on condition that there is none of its name, which the server decides, and rewritten by its
holder with a counter. Who waits looks at the counter with a clock of its own: clocks of two hosts
are never compared. A counter that stands still for `LEASE_SECONDS` is that of a dead holder, and
the next number may be taken.
"""

import json
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any
from uuid import uuid4

from beam_jobs.core.errors import TransientError
from beam_jobs.core.locks import POLL_SECONDS
from beam_jobs.core.variables import read_number_variable
from flows.runner.pulse import Pulse
from flows.store.bucket import Bucket

VARIABLE = "AMAZON_ELECTRA_LEASE_SECONDS"
LEASE_SECONDS = 120.0
RENEWALS, LOOKS = 10, 20
"""How often, in the seconds of a lease, it is renewed, and looked at by who waits."""


def read_lease_seconds() -> float:
    """Return after how long a maker that gives no sign is replaced."""
    return read_number_variable(VARIABLE, LEASE_SECONDS, 1, "seconds")


class Lease:
    """The lease of one folder, taken or wished for by this process.

    `home` identifies the local folder of this host; the caller has locked the stage there, so
    that an earlier holder of the same home is over.
    """

    def __init__(self, bucket: Bucket, name: str, home: str):
        self._bucket, self._prefix, self._home = bucket, f"{name}.lease-", home
        self._hasty = bucket.with_patience(0)
        """For what is done again soon anyway."""
        self.seconds = read_lease_seconds()
        self._token, self._count, self._number = uuid4().hex, 0, 0
        self._pulse = Pulse(self.seconds)
        self._renewed = 0.0
        self._lost = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pause(self) -> float:
        """Return the seconds between two looks of who waits."""
        return self.seconds / LOOKS

    def try_take(self) -> bool:
        """Take the lease if it is free or its holder is dead; return whether it is ours now."""
        names = self._list_names(self._bucket)
        if names and not self._is_dead(names[-1]):
            return False
        self._number = self._read_number(names[-1]) + 1 if names else 1
        if not self._bucket.create(self._name, self._format()):
            return False
        self._renewed = time.monotonic()
        self._remove(names)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return True

    def demand(self) -> None:
        """Return once it is certain that the lease is ours; raise TransientError if it is not.

        A lease that could not be renewed for long may be another host's by now. The next renewal
        tells.
        """
        while not self._is_fresh():
            if self._lost.wait(POLL_SECONDS) or self._over.is_set():
                raise TransientError(
                    f"{self._prefix.removesuffix('.lease-')} is made by another host now: this one "
                    f"gave no sign for more than {self.seconds:.0f} s"
                )

    def _is_fresh(self) -> bool:
        """Return whether the lease was renewed so short ago that nobody can have taken it."""
        return time.monotonic() - self._renewed < self.seconds / 2 and not self._lost.is_set()

    def release(self) -> None:
        """Give the lease back."""
        self._over.set()
        if self._thread:
            self._thread.join()
            with suppress(TransientError):  # then it is replaced like a dead one's
                self._hasty.remove(self._name)

    @property
    def _name(self) -> str:
        return f"{self._prefix}{self._number:06}"

    def _read_number(self, name: str) -> int:
        return int(name.removeprefix(self._prefix))

    def _list_names(self, bucket: Bucket) -> list[str]:
        return list(bucket.list_sizes(self._prefix))

    def _is_dead(self, name: str) -> bool:
        """Return whether a holder has given no sign for long, as far as we could look."""
        content = self._bucket.read(name)
        if content is None:
            return False
        stands_still = self._pulse.stands_still((name, content))
        return stands_still or read_home(content) == self._home

    def _format(self) -> bytes:
        state: dict[str, Any] = {
            "holder": f"{socket.gethostname()} {os.getpid()}",
            "home": self._home,
            "token": self._token,
            "count": self._count,
        }
        return json.dumps(state).encode()

    def _renew(self) -> None:
        while not self._over.wait(self.seconds / RENEWALS):
            self._count += 1
            began = time.monotonic()
            try:
                newest = max([*self._list_names(self._hasty), self._name])
                if newest != self._name:
                    self._lost.set()
                    return
                self._hasty.write(self._name, self._format())
                self._renewed = began
            except Exception:
                continue

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._bucket.remove(name)


def read_home(content: bytes) -> str:
    """Return which local folder the holder of a lease works in."""
    try:
        return str(json.loads(content)["home"])
    except (ValueError, KeyError, TypeError):
        return ""
