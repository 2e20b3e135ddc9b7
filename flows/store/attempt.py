"""One attempt to make a stage in a bucket: its files lie below a prefix of their own, and are
uploaded while the job writes them.

The manifest names the attempt that counts and is created, never replaced (flows/store/remote.py): a
stale writer cannot corrupt the store. Attempts are numbered. The heartbeat of the first one,
`<stage>/<fingerprint>/attempts/000001.json`, is created on condition that there is none of its
name, then renewed with a counter; hosts wait as long as the newest heartbeat is renewed. That only
prevents work that is done twice. Prefect's concurrency limits with leases would not do: `run`
has a Prefect server of its own on each host, and a limit there keeps nobody else away; each stage
would need a limit that is made and removed; and a lease of a process that was killed lasts a minute
at least, also for its successor on the same host, which here knows its own heartbeat.

Files are uploaded in the order in which they were written, each once it has stopped changing, so
that what the bucket holds is what the folder held a moment ago: another attempt continues from
there. Logs grow all the time; they are uploaded before any newer file, and cover it.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from pydantic import Field, TypeAdapter, ValidationError

from amazon_electra.beam_jobs.core.errors import TransientError
from amazon_electra.beam_jobs.core.files import stat_files
from amazon_electra.beam_jobs.core.variables import read_number_variable
from amazon_electra.flows.store.bucket import Bucket
from amazon_electra.flows.store.place import REQUEST

log = logging.getLogger("amazon_electra")

VARIABLE = "AMAZON_ELECTRA_LEASE_SECONDS"
LEASE_SECONDS = 120.0
RENEWALS = 10
"""How often a heartbeat is renewed in these seconds."""
LOOK_SECONDS = 2.0
AT_ONCE = 8
"""Requests side by side: they are slow, the network is not."""
GROWING = (".jsonl", "log.txt")
FileState = tuple[int, int]
"""Bytes, and the time of the last change (ns)."""


def read_lease_seconds() -> float:
    """Return after how long a maker that sends no heartbeat is replaced."""
    return read_number_variable(VARIABLE, LEASE_SECONDS, 1, "seconds")


@dataclass(frozen=True)
class Heartbeat:
    """What the maker of an attempt writes for other hosts."""

    home: str = ""
    """Which machine's part of the store the maker works in."""
    files: Annotated[str, Field(pattern=r"^(\d{6}-[0-9a-f]{8})?$")] = ""
    """The folder of its files, in that of the stage."""
    count: int = 0
    is_whole: bool = False
    """Whether it has all that it continues from, so that others may continue from it."""
    is_over: bool = False

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def decode_heartbeat(content: bytes) -> Heartbeat:
    """Return the heartbeat in an object; a damaged one is of an attempt that is over."""
    try:
        return TypeAdapter(Heartbeat).validate_json(content)
    except ValidationError:
        return Heartbeat(is_over=True)


def read_heartbeats(bucket: Bucket, name: str) -> dict[int, Heartbeat]:
    """Return the heartbeats of a stage's attempts by number, ascending."""
    listed = bucket.list_sizes(f"{name}/attempts/")
    found = bucket.read_all([at for at in listed if re.search(r"/\d{6}\.json$", at)])
    return {int(Path(at).stem): decode_heartbeat(found[at]) for at in sorted(found)}


class Attempt:
    """This process's attempt to make the stage `name` in the local `folder`: a new one, or one of
    an earlier process of this machine, with that one's heartbeat.
    """

    def __init__(self, bucket: Bucket, name: str, number: int, heartbeat: Heartbeat, folder: Path):
        files = heartbeat.files or f"{number:06}-{uuid4().hex[:8]}"
        self.heartbeat = replace(heartbeat, files=files, is_over=False)
        self._bucket, self._folder = bucket, folder
        self._hasty = bucket.with_patience(0)
        """For what is done again soon anyway."""
        self.path, self._heartbeat_name = f"{name}/{files}", f"{name}/attempts/{number:06}.json"
        self._seen: dict[str, FileState] = {}
        self._sent: dict[str, FileState] = {}
        self._is_written, self._is_over = threading.Event(), threading.Event()
        self._is_whole = False
        self._renewer = threading.Thread(target=self._renew, name=f"renew {name}", daemon=True)
        self._follower = threading.Thread(target=self._follow, name=f"upload {name}", daemon=True)

    def claim(self) -> bool:
        """Take the number of this attempt; return whether it was free."""
        if not self._bucket.create(self._heartbeat_name, self.heartbeat.encode()):
            return False
        self._renewer.start()
        return True

    def copy(self, source: str) -> None:
        """Copy what another attempt has uploaded, to this one's prefix and to this machine.

        A maker that lives after all may remove an old checkpoint meanwhile: then it has a new one.
        """
        while True:
            names = [at[len(source) + 1 :] for at in self._bucket.list_sizes(f"{source}/")]
            try:
                self._do_all(
                    lambda n: self._bucket.copy(f"{source}/{n}", f"{self.path}/{n}"), names
                )
                return self.download()
            except FileNotFoundError:
                self._do_all(self._bucket.remove, self._list())

    def download(self) -> None:
        """Bring the files of this attempt to this machine that are not here; a request of its own
        is written anew before each job.
        """
        names = [at[len(self.path) + 1 :] for at in self._list()]
        names = [n for n in names if n != REQUEST and not (self._folder / n).exists()]
        self._do_all(lambda n: self._bucket.download(f"{self.path}/{n}", self._folder / n), names)
        states = self._scan()
        self._sent |= {name: states[name] for name in names if name in states}

    def start(self) -> None:
        """Start to upload what the job writes; others may continue from it."""
        self._is_whole = True
        self._follower.start()
        if not self._renewer.is_alive():
            self._renewer.start()

    def stop_following(self) -> None:
        """Return once no upload is under way."""
        self._is_written.set()
        if self._follower.is_alive():
            self._follower.join()

    def finish(self, files: Iterable[Mapping[str, Any]], extras: Iterable[str]) -> None:
        """Upload what is left of a manifest's files, and of `extras`; remove every other one."""
        self.stop_following()
        sizes, states = {file["path"]: file["size"] for file in files}, self._scan()
        wanted = (sizes.keys() | set(extras)) & states.keys()
        left = sorted(path for path in wanted if self._sent.get(path) != states[path])
        self._do_all(lambda path: self._upload(path, states[path]), left)
        there = {at[len(self.path) + 1 :]: size for at, size in self._list().items()}
        self._do_all(self._remove, sorted(there.keys() - wanted))
        if lost := [path for path, size in sizes.items() if there.get(path) != size]:
            raise TransientError(f"{self.path}/{lost[0]} is not in the bucket as it was made")

    def end(self) -> None:
        """Write that nobody works on it any more."""
        self.stop()
        self._tell(is_over=True)

    def stop(self) -> None:
        """Neither upload nor send heartbeats any more; return when that is so."""
        self.stop_following()
        self._is_over.set()
        if self._renewer.is_alive():
            self._renewer.join()

    def _do_all(self, request: Callable[[str], Any], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(request, names))

    def _list(self) -> dict[str, int]:
        return self._bucket.list_sizes(f"{self.path}/")

    def _remove(self, path: str) -> None:
        self._bucket.remove(f"{self.path}/{path}")

    def _tell(self, is_over: bool = False) -> None:
        """Renew the heartbeat; where the server is away others wait until it stands still."""
        count = self.heartbeat.count + 1
        is_whole = self._is_whole and self._folder.exists()  # who found it wrong has removed it
        self.heartbeat = replace(self.heartbeat, count=count, is_whole=is_whole, is_over=is_over)
        with suppress(Exception):
            self._hasty.write(self._heartbeat_name, self.heartbeat.encode())

    def _renew(self) -> None:
        while not self._is_over.wait(read_lease_seconds() / RENEWALS):
            self._tell()

    def _follow(self) -> None:
        while not self._is_written.wait(LOOK_SECONDS):
            try:
                self._upload_changes()
            except Exception as error:
                log.warning("%s is not uploaded yet: %s", self.path, error)

    def _upload_changes(self) -> None:
        """Upload what has stopped changing since the last look, oldest first, after the logs; then
        remove what is no longer here: an old checkpoint, once the new one is there.
        """
        states = self._scan()
        changed = {path: s for path, s in states.items() if self._sent.get(path) != s}
        still = [p for p, s in changed.items() if self._seen.get(p) == s and not is_growing(p)]
        self._seen = states
        if still:
            logs = [path for path in changed if is_growing(path)]
            for path in [*logs, *sorted(still, key=lambda p: (states[p][1], p))]:
                if self._is_written.is_set():
                    return
                self._upload(path, states[path])
        if all(self._sent.get(p) == s for p, s in states.items() if not is_growing(p)):
            for path in sorted(set(self._sent) - set(states)):
                self._remove(path)
                del self._sent[path]

    def _upload(self, path: str, state: FileState) -> None:
        with suppress(FileNotFoundError):  # the job has just removed or renamed it
            self._bucket.upload(self._folder / path, f"{self.path}/{path}")
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
