"""Tells by what another host renews whether it lives; clocks of two hosts are never compared."""

import time


class Pulse:
    """Looks at a sign that whoever lives renews, with this host's clock alone."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._seen: object = None
        self._since = self._looked = time.monotonic()

    def stands_still(self, sign: object) -> bool:
        """Return whether the sign has been the same for `seconds`, as far as somebody looked: who
        could not look for long, as the server was away, begins anew.
        """
        now = time.monotonic()
        was_away = now - self._looked > self.seconds / 2
        self._looked = now
        if sign != self._seen or was_away:
            self._seen, self._since = sign, now
        return now - self._since >= self.seconds
