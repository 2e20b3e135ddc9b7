"""Uploads what a job writes into a stage folder, while it writes it.

Files are uploaded in the order in which they were written, each once it has stopped changing, so
that what the bucket holds is what the folder held a moment ago: another host continues from there.
Logs grow all the time; they are uploaded before any newer file, and cover it.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from beam_jobs.core.files import stat_files
from flows.store.bucket import Bucket

log = logging.getLogger("amazon_electra")

LOOK_SECONDS = 2.0
AT_ONCE = 8
"""Uploads side by side once a stage is made: requests are slow, the network is not."""
GROWING = (".jsonl", "log.txt")
FileState = tuple[int, int]
"""Bytes, and the time of the last change (ns)."""


class Uploader:
    """Keeps a folder of the bucket like a local one until it is told to finish."""

    def __init__(self, bucket: Bucket, folder: Path, name: str, demand_lease: Callable[[], None]):
        self._bucket, self._folder, self._name = bucket, folder, name
        self._demand_lease = demand_lease
        self._seen: dict[str, FileState] = {}
        self._sent: dict[str, FileState] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"upload {name}", daemon=True)

    def start(self, sent: Iterable[str] = ()) -> None:
        """Start to follow the folder; the files in `sent` are as the bucket has them."""
        self.mark_sent(sent)
        self._thread.start()

    def mark_sent(self, paths: Iterable[str]) -> None:
        """Take these files for those that the bucket has."""
        states = self._scan()
        self._sent |= {path: states[path] for path in paths if path in states}

    def stop(self) -> None:
        """Stop to follow the folder; return once no upload is under way."""
        self._over.set()
        self._thread.join()

    def finish(self, paths: Iterable[str]) -> None:
        """Upload what is left of these files, and remove every other one from the bucket."""
        self.stop()
        states, wanted = self._scan(), set(paths)
        left = [p for p in sorted(wanted) if p in states and self._sent.get(p) != states[p]]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(self._upload, path, states[path]) for path in left]:
                done.result()
        start = len(self._name) + 1
        for there in self._bucket.list_sizes(f"{self._name}/"):
            if there[start:] not in wanted:
                self._demand_lease()
                self._bucket.remove(there)

    def _follow(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._upload_changes()
            except Exception as error:
                log.warning("%s is not uploaded yet: %s", self._name, error)

    def _upload_changes(self) -> None:
        """Upload what has stopped changing since the last look, oldest first, after the logs."""
        states = self._scan()
        changed = {path: s for path, s in states.items() if self._sent.get(path) != s}
        still = [p for p, s in changed.items() if self._seen.get(p) == s and not is_growing(p)]
        self._seen = states
        if still:
            logs = [path for path in changed if is_growing(path)]
            for path in [*logs, *sorted(still, key=lambda p: (states[p][1], p))]:
                if self._over.is_set():
                    return
                self._upload(path, states[path])
        if all(self._sent.get(p) == s for p, s in states.items() if not is_growing(p)):
            self._remove_gone(states)

    def _remove_gone(self, states: dict[str, FileState]) -> None:
        """Remove what is no longer here from the bucket: an old checkpoint, once the new one is
        there.
        """
        for path in sorted(set(self._sent) - set(states)):
            self._demand_lease()
            self._bucket.remove(f"{self._name}/{path}")
            del self._sent[path]

    def _upload(self, path: str, state: FileState) -> None:
        self._demand_lease()
        with suppress(FileNotFoundError):  # the job has just removed or renamed it
            self._bucket.upload(self._folder / path, f"{self._name}/{path}")
            self._sent[path] = state

    def _scan(self) -> dict[str, FileState]:
        """Return the state of every file of the folder that has its final name."""
        return {
            path.relative_to(self._folder).as_posix(): (state.st_size, state.st_mtime_ns)
            for path, state in stat_files(self._folder)
            if not path.name.startswith(".")
        }


def is_growing(path: str) -> bool:
    """Return whether a file is one that a job appends to as long as it runs."""
    return path.endswith(GROWING)
