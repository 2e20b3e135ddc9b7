"""A bucket as the place of a store. What jobs read is copied to this machine, what they make is
uploaded while they make it, below a prefix of the attempt, and the manifest, which names it, last.

`root` is this machine's part of the store: the copies, and what only this machine needs (the
servers' databases, logs, digests of dumps). The copies are bounded: those used longest ago go
first. A folder that a process reads or makes is locked (`<fingerprint>.lock`), shared or alone, and
stays.
"""

import fcntl
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.beam_jobs.core.files import (
    atomic_path,
    hash_bytes,
    hash_file,
    stat_files,
    write_json,
)
from amazon_electra.beam_jobs.core.locks import exclusive_lock, try_lock
from amazon_electra.beam_jobs.core.variables import read_number_variable
from amazon_electra.flows.configuration.addresses import has_secret
from amazon_electra.flows.store.attempt import (
    AT_ONCE,
    RENEWALS,
    Attempt,
    Heartbeat,
    read_heartbeats,
    read_lease_seconds,
)
from amazon_electra.flows.store.bucket import Bucket
from amazon_electra.flows.store.place import (
    MAKER,
    MANIFEST,
    Place,
    check_path,
    is_part,
    is_stage_folder,
    parse_manifest,
)

log = logging.getLogger("amazon_electra")

HOME = "remote.json"
"""File of a machine's part of a store, with the store's address."""
STATE_VARIABLE = "AMAZON_ELECTRA_STATE"
STATE = "~/.amazon-electra"
SCHEMES = ("s3", "gs")
LOOKS = 20
"""How often, in the seconds of a lease, who waits looks at a maker's heartbeat."""
RENEWALS_TO_SEE = 3
CACHE_VARIABLE, CACHE_GB = "AMAZON_ELECTRA_CACHE_GB", 100.0


class RemotePlace(Place):
    """The objects below an address, and this machine's copies of them."""

    def __init__(self, address: str, root: Path):
        super().__init__(root)
        self.address = address
        self._pins = threading.local()
        self._attempts: dict[str, Attempt] = {}
        """Of this process, by the folders that they are to make."""

    @cached_property
    def _bucket(self) -> Bucket:
        return Bucket(self.address)

    @cached_property
    def _home(self) -> str:
        """Return the name of this machine's part; it is made if need be."""
        file = self.root / HOME
        if not file.exists():
            write_json(file, {"address": self.address, "home": uuid4().hex})
        return str(json.loads(file.read_text(encoding="utf-8"))["home"])

    def check_access(self) -> None:
        """Write, read, list and remove an object: without these rights nothing can be made.

        Creating it twice shows whether the server has conditional writes, without which two hosts
        could both complete a stage.
        """
        there, name = self._bucket.with_patience(0), f".access-{uuid4().hex}"
        there.list_sizes(name)
        is_first = there.create(name, self._home.encode())
        is_second = there.create(name, b"again")
        there.remove(name)
        if not is_first or is_second:
            raise UserError(
                "the server does not support conditional writes "
                "(If-None-Match), so two hosts could make the same stage; use another server",
                "store",
                self.address,
            )

    def check_presence(self) -> None:
        self._bucket.with_patience(0).list_sizes(".access-")

    def locate(self, name: str) -> str:
        mark = self.root / name / MAKER
        if mark.exists():  # it is being made, by this process or for its parent
            return f"{self.address}/{name}/{mark.read_text(encoding='utf-8')}"
        manifest = self._read_attempt(name)
        return f"{self.address}/{name}" + (f"/{manifest['attempt']}" if manifest else "")

    def read_manifest(self, name: str) -> bytes | None:
        return self._bucket.read(f"{name}/{MANIFEST}")

    def _read_attempt(self, name: str) -> dict[str, Any] | None:
        """Return the manifest of a complete folder, with its attempt; UserError for a damaged one,
        which is never replaced.
        """
        text = self.read_manifest(name)
        if text is None:
            return None
        try:
            manifest = parse_manifest(text)
            check_path(manifest["attempt"])
        except KeyError:
            raise damage_error(self.address, name, f"{MANIFEST} names no attempt") from None
        except ValueError as damage:
            raise damage_error(self.address, name, f"{MANIFEST}: {damage}") from None
        return manifest

    def list_manifests(self) -> Mapping[str, bytes]:
        names = [n for n in self._bucket.list_sizes() if n.endswith(f"/{MANIFEST}")]
        found = self._bucket.read_all([n for n in names if n.count("/") == 2])
        return {name.removesuffix(f"/{MANIFEST}"): text for name, text in found.items()}

    def fetch(self, name: str, parts: Sequence[str] = ()) -> None:
        """Copy files of a complete folder to this machine, unless they are here.

        Each is compared with the SHA-256 of the manifest. Within `hold` the copies stay until its
        end.
        """
        manifest, folder = self._read_attempt(name), self.root / name
        if manifest is None or name in self._attempts:
            return
        use_copy(folder, getattr(self._pins, "stack", None))
        listed = [file for file in manifest["files"] if is_part(file["path"], parts)]
        damage = {file["path"]: self.find_damage(name, file) for file in listed}
        for path, why in damage.items():
            if why and (folder / path).exists():
                log.warning("%s is damaged (it %s): it is fetched again", folder / path, why)
        missing = [file for file in listed if damage[file["path"]]]
        shrink(self.root, sum(file["size"] for file in missing))
        source = f"{name}/{manifest['attempt']}"
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda file: self._download(name, source, file), missing))
        write_json(folder / MANIFEST, manifest)
        self.mark_checked(name, missing)

    def _download(self, name: str, source: str, file: Mapping[str, Any]) -> None:
        """Copy one file here; one that is not what the manifest says is never seen by a job."""
        with atomic_path(self.root / name / file["path"]) as part:
            try:
                self._bucket.download(f"{source}/{file['path']}", part)
            except FileNotFoundError:
                raise damage_error(self.address, name, f"{file['path']} is not there") from None
            if hash_file(part) != file["sha256"]:
                raise damage_error(self.address, name, f"{file['path']} has another SHA-256")

    @contextmanager
    def hold(self, name: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Let one process of this machine make a folder, and wait for one on another host as long
        as it sends heartbeats. Nobody holds a folder that is complete.

        What the newest attempt has uploaded is here when the block begins.
        """
        folder = self.root / name
        with exclusive_lock(folder.with_suffix(".lock"), on_wait):
            try:
                with ExitStack() as self._pins.stack:
                    self._begin(name, folder, on_wait)
                    yield
            finally:
                self._pins.stack = None
                if attempt := self._attempts.pop(name, None):
                    attempt.end()

    def _begin(self, name: str, folder: Path, on_wait: Callable[[], None]) -> None:
        """Begin an attempt once no other host sends heartbeats; none of a complete folder."""
        seconds, seen, looks = read_lease_seconds(), None, 0
        while self._read_attempt(name) is None:
            heartbeats = read_heartbeats(self._bucket, name)
            number, last = max(heartbeats.items(), default=(0, Heartbeat(is_over=True)))
            is_ours, mark = last.home == self._home, folder / MAKER
            if not last.is_over and not is_ours and looks < LOOKS:
                if seen is None:
                    on_wait()
                # counted, not timed: while the server is away neither side can do anything
                seen, looks = last, looks + 1 if last == seen else 0
                time.sleep(seconds / LOOKS)
                continue
            goes_on = is_ours and mark.exists() and mark.read_text(encoding="utf-8") == last.files
            if goes_on:
                attempt = Attempt(self._bucket, name, number, last, folder)
            else:
                attempt = Attempt(self._bucket, name, number + 1, Heartbeat(self._home), folder)
                if not attempt.claim():
                    continue
            self._attempts[name] = attempt
            if not goes_on:
                remove_copy(folder)
                if whole := [one.files for one in heartbeats.values() if one.is_whole]:
                    attempt.copy(f"{name}/{whole[-1]}")
                folder.mkdir(parents=True, exist_ok=True)
                mark.write_text(attempt.heartbeat.files, encoding="utf-8")
            attempt.start()
            return

    @contextmanager
    def pin(self) -> Iterator[None]:
        with ExitStack() as self._pins.stack:
            try:
                yield
            finally:
                self._pins.stack = None

    def collect(self, name: str) -> None:
        """Copy what the workers of an engine wrote to a held folder; it is not uploaded again."""
        self._attempts[name].stop_following()
        self._attempts[name].download()

    def complete(
        self, name: str, manifest: Mapping[str, Any], extras: Iterable[str]
    ) -> Mapping[str, Any]:
        """Upload what is left, then create the manifest, unless another attempt's is there.

        From then on nobody reads what it does not name: the files of the other attempts go, or
        those of this one if it came too late.
        """
        attempt, folder = self._attempts[name], self.root / name
        if self._read_attempt(name) is None:
            attempt.finish(manifest["files"], extras)
        named: Mapping[str, Any] = {**manifest, "attempt": attempt.heartbeat.files}
        is_first = self._bucket.create(
            f"{name}/{MANIFEST}", json.dumps(named, indent=1, ensure_ascii=False).encode()
        )
        del self._attempts[name]
        attempt.stop()
        if is_first:
            write_json(folder / MANIFEST, named)
            (folder / MAKER).unlink()
            self.mark_checked(name, manifest["files"])
        else:
            log.warning("%s: another host was faster; what it made is used", name)
            remove_copy(folder)
            there = self._read_attempt(name)
            if there is None:
                raise TransientError(f"{name}: another host made it, and it was removed since")
            named = there
        kept = f"{name}/{named['attempt']}/"
        for at in self._bucket.list_sizes(f"{name}/"):
            if at != f"{name}/{MANIFEST}" and not at.startswith(kept):
                self._bucket.remove(at)
        shrink(self.root)
        return named

    def list_folders(self) -> list[str]:
        folders = {"/".join(name.split("/")[:2]) for name in self._listing if name.count("/") > 1}
        return sorted(filter(is_stage_folder, folders))

    def measure(self, name: str) -> int:
        return sum(size for n, size in self._listing.items() if n.startswith(f"{name}/"))

    def list_held(self, names: Sequence[str]) -> set[str]:
        """Return the folders whose heartbeat is renewed while we look; a dead maker's is not."""
        before = {name: found for name in names if (found := read_heartbeats(self._bucket, name))}
        if before:
            time.sleep(RENEWALS_TO_SEE * read_lease_seconds() / RENEWALS)
        return {n for n, found in before.items() if read_heartbeats(self._bucket, n) != found}

    def remove(self, name: str) -> bool:
        self._bucket.remove(f"{name}/{MANIFEST}")
        for there in self._bucket.list_sizes(f"{name}/"):
            self._bucket.remove(there)
        remove_copy(self.root / name)
        return True

    @cached_property
    def _listing(self) -> dict[str, int]:
        """Return the bytes of every object, listed once: a command looks at one moment."""
        return self._bucket.list_sizes()


def open_remote_place(address: str, root: Path | None = None) -> RemotePlace:
    """Return the place of an address; a UserError names what is wrong with its spelling.

    `root` is this machine's part of it, by default one below AMAZON_ELECTRA_STATE.
    """
    scheme, _, rest = address.partition("://")
    if scheme not in SCHEMES:
        raise UserError(
            f"store: {address}: results go to a local folder, s3:// or gs://; other addresses are "
            "not supported"
        )
    if has_secret(address):
        raise UserError(
            "store: an address with a password or a signature in it; give these to the store's "
            "package: s3 reads AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, gs "
            "GOOGLE_APPLICATION_CREDENTIALS"
        )
    path = "/".join(part for part in rest.split("/") if part)
    if not path:
        raise UserError(f"store: {address}: it has no bucket; write {scheme}://BUCKET/FOLDER")
    clean = f"{scheme}://{path}"
    slug = re.sub(r"[^a-z0-9]+", "-", clean.lower())[:40].strip("-")
    state = Path(os.environ.get(STATE_VARIABLE) or STATE).expanduser().resolve()
    return RemotePlace(clean, root or state / f"{slug}-{hash_bytes(clean.encode())[:8]}")


def read_remote_address(folder: Path) -> str:
    """Return the address of the store whose part on this machine a folder is, or nothing."""
    try:
        return str(json.loads((folder / HOME).read_text(encoding="utf-8"))["address"])
    except (FileNotFoundError, NotADirectoryError):
        return ""


def use_copy(folder: Path, pins: ExitStack | None) -> None:
    """Make a folder the one that goes last; it stays until `pins` are closed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock: IO[str] = open(folder.with_suffix(".lock"), "a+", encoding="utf-8")  # noqa: SIM115 - closed below or by `pins`
    os.utime(lock.fileno())
    if pins is None:
        lock.close()
    else:
        pins.callback(lock.close)
        fcntl.flock(lock.fileno(), fcntl.LOCK_SH)


def shrink(root: Path, needed: int = 0) -> None:
    """Remove the copies used longest ago until `needed` bytes more are within the bound."""
    room = read_number_variable(CACHE_VARIABLE, CACHE_GB, 0, "gigabytes") * 1e9 - needed
    sizes = {
        path.with_suffix(".lock"): sum(s.st_size for _, s in stat_files(path, follow_links=False))
        for path in root.glob("*/*")
        if path.is_dir() and is_stage_folder(path.name) and path.with_suffix(".lock").exists()
    }
    for path in sorted(sizes, key=lambda lock: lock.stat().st_mtime):
        if sum(sizes.values()) <= room:
            return
        with path.open("a+", encoding="utf-8") as lock:
            if try_lock(lock):
                remove_copy(path.with_suffix(""))
                sizes[path] = 0


def remove_copy(folder: Path) -> None:
    """Remove a local copy; what says that it is whole goes first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / MAKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def damage_error(address: str, name: str, what: str) -> UserError:
    """Return the error of a complete stage that lost a file."""
    return UserError(
        f"{name} is damaged: {what}; remove {name}/{MANIFEST} there and it is made again",
        "store",
        address,
    )
