"""A bucket as the place of a store. What jobs read is copied to this machine, what they make is
uploaded while they make it, and the manifest last.

`root` is this machine's part of the store: the copies, and what only this machine needs (the
servers' databases, logs, digests of dumps). Bucket and `root` have the same folders.
"""

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from beam_jobs.core.errors import TransientError, UserError
from beam_jobs.core.files import atomic_path, hash_bytes, hash_file, write_json
from beam_jobs.core.hosts import check_host
from beam_jobs.core.locks import exclusive_lock
from flows.configuration.addresses import has_secret
from flows.store.bucket import Bucket
from flows.store.cache import MAKER, Cache, Copies, remove_copy
from flows.store.lease import RENEWALS, Lease, read_lease_seconds
from flows.store.place import MANIFEST, StoredFile, check_path, is_part, is_stage_folder
from flows.store.uploader import AT_ONCE, Uploader

log = logging.getLogger("amazon_electra")

HOME = "remote.json"
"""File of a machine's part of a store, with the store's address."""
STATE_VARIABLE = "AMAZON_ELECTRA_STATE"
STATE = "~/.amazon-electra"
SCHEMES = ("s3", "gs")
RENEWALS_TO_SEE = 3


class RemotePlace:
    """The objects below an address, and this machine's copies of them."""

    def __init__(self, address: str, root: Path):
        self.address, self.root = address, root
        self._cache = Cache(root)
        self._pins = threading.local()
        self._uploaders: dict[str, Uploader] = {}
        self._leases: dict[str, Lease] = {}

    @cached_property
    def _bucket(self) -> Bucket:
        return Bucket(self.address)

    @cached_property
    def _home(self) -> str:
        """Return what tells this machine's part from another's; it is made if need be."""
        file = self.root / HOME
        if not file.exists():
            write_json(file, {"address": self.address, "home": uuid4().hex})
        return str(json.loads(file.read_text())["home"])

    def check_access(self) -> None:
        """Write, read, list and remove an object: whoever cannot do so could make nothing.

        Creating it twice tells whether the server has conditional writes, without which two hosts
        could make the same stage at once.
        """
        check_host(self.address, "--store")
        there, name = self._bucket.with_patience(0), f".access-{uuid4().hex}"
        content = self._home.encode()
        there.list_sizes(name)
        is_first = there.create(name, content)
        is_second = there.create(name, b"again")
        there.remove(name)
        if not is_first or is_second:
            raise UserError(
                f"--store {self.address}: the server knows no conditional writes "
                "(If-None-Match), so two hosts could make the same stage; use another server"
            )

    def check_presence(self) -> None:
        check_host(self.address, "--store")
        self._bucket.with_patience(0).list_sizes(".access-")

    def read_manifest(self, name: str) -> bytes | None:
        return self.read(f"{name}/{MANIFEST}")

    def read(self, name: str) -> bytes | None:
        return self._bucket.read(name)

    def write(self, name: str, content: bytes) -> None:
        self._bucket.write(name, content)

    def list_manifests(self) -> Mapping[str, bytes]:
        names = [n for n in self._bucket.list_sizes() if n.endswith(f"/{MANIFEST}")]
        found = self._bucket.read_all([n for n in names if n.count("/") == 2])
        return {name.removesuffix(f"/{MANIFEST}"): text for name, text in found.items()}

    def fetch(self, name: str, parts: Sequence[str] = ()) -> None:
        """Copy files of a complete folder to this machine, unless they are here.

        Each is compared with the SHA-256 of the manifest. Within `hold` the copies stay until its
        end.
        """
        text, folder = self.read_manifest(name), self.root / name
        if text is None or name in self._uploaders:
            return
        self._cache.mark_used(folder)
        if (pins := getattr(self._pins, "stack", None)) is not None:
            self._cache.pin(folder, pins)
        listed = [f for f in json.loads(text)["files"] if is_part(f["path"], parts)]
        for file in listed:
            try:
                check_path(file["path"])
            except ValueError as error:
                raise damage_error(self.address, name, str(error)) from None
        copies = Copies(folder)
        missing = [file for file in listed if not copies.is_whole(file)]
        self._cache.shrink(sum(file["size"] for file in missing))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda file: self._download(name, file), missing))
        (folder / MANIFEST).write_bytes(text)
        copies.remember(listed)

    @contextmanager
    def hold(self, name: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Let one maker at a time, on all hosts, make a folder; upload what it writes meanwhile.

        What an earlier maker on another host has uploaded is here when the block begins. Nobody
        holds a folder that is complete.
        """
        folder, waits = self.root / name, call_once(on_wait)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(folder.with_suffix(".lock"), waits):
            lease = Lease(self._bucket, name, self._home)
            while self.read_manifest(name) is None and not lease.try_take():
                waits()
                time.sleep(lease.pause)
            try:
                with ExitStack() as self._pins.stack:
                    if self.read_manifest(name) is None:
                        self._begin(name, folder, lease)
                    yield
            finally:
                self._pins.stack = None
                self._leases.pop(name, None)
                if uploader := self._uploaders.pop(name, None):
                    uploader.stop()
                lease.release()

    def collect(self, name: str) -> None:
        """Copy what the workers of an engine wrote to a held folder; it is not uploaded again."""
        self._uploaders[name].stop()
        self._uploaders[name].mark_sent(self._restore(name, self.root / name))

    def complete(self, name: str, manifest: Mapping[str, Any], extras: Iterable[str]) -> None:
        """Upload what is left, then the manifest: the first one that comes stays."""
        files = [file["path"] for file in manifest["files"]]
        self._uploaders[name].finish([*files, *extras])
        self._leases[name].demand()
        if not self._bucket.create(f"{name}/{MANIFEST}", encode_manifest(manifest)):
            raise TransientError(f"{name}: another host has made it meanwhile")
        write_json(self.root / name / MANIFEST, manifest)
        Copies(self.root / name).remember(manifest["files"])
        self._cache.shrink()

    def rewrite_manifest(self, name: str, manifest: Mapping[str, Any]) -> None:
        self._bucket.write(f"{name}/{MANIFEST}", encode_manifest(manifest))

    def list_kinds(self) -> list[str]:
        return sorted({name.split("/")[0] for name in self._listing if "/" in name})

    def list_folders(self) -> list[str]:
        """Return the names of all stage folders, complete or not, in order."""
        folders = {"/".join(name.split("/")[:2]) for name in self._listing if name.count("/") > 1}
        return sorted(filter(is_stage_folder, folders))

    def list_files(self, name: str) -> list[StoredFile]:
        start = f"{name}/"
        return [StoredFile(n, s) for n, s in self._listing.items() if n.startswith(start)]

    def list_held(self, names: Sequence[str]) -> set[str]:
        """Return the folders whose lease is renewed while we look; a dead maker's stands still."""
        leases = self._read_leases(names)
        if leases:
            time.sleep(RENEWALS_TO_SEE * read_lease_seconds() / RENEWALS)
        later = self._read_leases([lease.split(".lease-")[0] for lease in leases])
        return {lease.split(".lease-")[0] for lease in leases if later.get(lease) != leases[lease]}

    def remove(self, name: str) -> bool:
        self._bucket.remove(f"{name}/{MANIFEST}")  # what is half removed is not complete
        for prefix in (f"{name}/", f"{name}.lease-"):
            for found in self._bucket.list_sizes(prefix):
                self._bucket.remove(found)
        remove_copy(self.root / name)
        return True

    @cached_property
    def _listing(self) -> dict[str, int]:
        """Return the bytes of every object, listed once: a command looks at one moment."""
        return self._bucket.list_sizes()

    def _read_leases(self, names: Sequence[str]) -> dict[str, bytes]:
        leases = [name for name in self._bucket.list_sizes() if ".lease-" in name]
        return self._bucket.read_all([n for n in leases if n.split(".lease-")[0] in names])

    def _begin(self, name: str, folder: Path, lease: Lease) -> None:
        """Get the folder ready for its job, and start to upload what the job writes."""
        there = self._bucket.read(f"{name}/{MAKER}")
        is_ours = there == self._home.encode() and (folder / MAKER).exists()
        restored: list[str] = []
        if (folder / MANIFEST).exists() or (there is not None and not is_ours):
            remove_copy(folder)
            restored = self._restore(name, folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MAKER).write_text(self._home)
        self._bucket.write(f"{name}/{MAKER}", self._home.encode())
        self._leases[name] = lease
        self._uploaders[name] = Uploader(self._bucket, folder, name, lease.demand)
        self._uploaders[name].start(restored)
        self._cache.mark_used(folder)

    def _restore(self, name: str, folder: Path) -> list[str]:
        """Copy what others have written, unless it is here; return the names of the files."""
        start = len(name) + 1
        found = [n[start:] for n in self._bucket.list_sizes(f"{name}/")]
        known = (path for path in found if path not in (MAKER, MANIFEST))
        left = [path for path in known if not (folder / path).exists()]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda p: self._bucket.download(f"{name}/{p}", folder / p), left))
        return left

    def _download(self, name: str, file: Mapping[str, Any]) -> None:
        """Copy one file here; one that is not what the manifest says is never seen by a job."""
        with atomic_path(self.root / name / file["path"]) as part:
            try:
                self._bucket.download(f"{name}/{file['path']}", part)
            except FileNotFoundError:
                raise damage_error(self.address, name, f"{file['path']} is not there") from None
            if hash_file(part) != file["sha256"]:
                raise damage_error(self.address, name, f"{file['path']} has another SHA-256")


def open_remote_place(address: str, root: Path | None = None) -> RemotePlace:
    """Return the place of an address; a UserError names what is wrong with its spelling.

    `root` is this machine's part of it, by default one below AMAZON_ELECTRA_STATE.
    """
    scheme, _, rest = address.partition("://")
    if scheme not in SCHEMES:
        raise UserError(
            f"store: {address}: results go to a local folder, s3:// or gs://; others are not known"
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
        return str(json.loads((folder / HOME).read_text())["address"])
    except (FileNotFoundError, NotADirectoryError):
        return ""


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as a local place writes it."""
    return json.dumps(manifest, indent=1, ensure_ascii=False).encode()


def damage_error(address: str, name: str, what: str) -> UserError:
    """Return the error of a complete stage that lost a file."""
    return UserError(
        f"--store {address}: {name} is damaged: {what}; remove {name}/{MANIFEST} there and it is "
        "made again"
    )


def call_once(function: Callable[[], None]) -> Callable[[], None]:
    """Return the function, made to do nothing from its second call on."""
    called = threading.Event()

    def call() -> None:
        if not called.is_set():
            called.set()
            function()

    return call
