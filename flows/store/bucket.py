"""A bucket as the place of a store, `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`.

`root` is this machine's part of the store: copies of what jobs read, what they make, and what only
this machine needs (the servers' databases, logs, digests of dumps). What was made is uploaded below
a prefix of its own; then the manifest, which names it, is created where there is none. Of two hosts
that make the same stage the first wins, the work of the other is wasted.

Checkpoints are uploaded as they are written, below `partial/`, so that another host continues from
the newest. Where two train at once, they write the same bytes there.
"""

import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

from amazon_electra.beam_jobs.core.errors import (
    TransientError,
    UserError,
    describe_error,
    is_network_error,
    name_setting,
)
from amazon_electra.beam_jobs.core.files import atomic_path, hash_bytes, hash_file, write_json
from amazon_electra.beam_jobs.core.locks import exclusive_lock
from amazon_electra.beam_jobs.core.nesting import load_json
from amazon_electra.flows.configuration.addresses import has_secret
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

T = TypeVar("T")
PATIENCE_SECONDS = 300.0
"""How long a server that is away is asked again; Prefect then tries the stage again."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 10.0  # seconds
REFUSED_CREATIONS = {"PreconditionFailed", "ConditionalRequestConflict"}
"""Codes of S3 for an object that is there already, or is being created."""
SETTINGS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


HOME = "remote.json"
"""File of a machine's part of a store, with the store's address."""
STATE_VARIABLE, STATE = "AMAZON_ELECTRA_STATE", "~/.amazon-electra"
PARTIAL, CHECKPOINTS = "partial", "step-*"
LOOK_SECONDS = 2.0
"""Between two looks for new checkpoints."""
AT_ONCE = 8
"""Requests side by side: they are slow, the network is not."""


class Bucket:
    """The objects below one address; `patience` in seconds. Every request is repeated while the
    server is away; other failures are reported in one line.
    """

    def __init__(self, address: str, patience: float = PATIENCE_SECONDS):
        from fsspec.core import url_to_fs

        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # what fails is printed here, once
        self.address, self.patience = address, patience
        try:
            self._there, self._prefix = url_to_fs(address, use_listings_cache=False)
        except ImportError as missing:
            raise UserError(f"{missing}", "store", address) from None

    def with_patience(self, seconds: float) -> "Bucket":
        """Return the same objects, asked for with another patience."""
        other = copy(self)
        other.patience = seconds
        return other

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, None where there is none."""
        try:
            content: bytes = self._ask(self._there.cat_file, self._join(name))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        self._ask_bucket(self._there.pipe_file, self._join(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of this name; return whether it is ours.

        An answer that was lost on its way leads to a second request, which is refused: so what is
        there is read.
        """
        try:
            self._ask_bucket(self._there.pipe_file, self._join(name), content, mode="create")
        except OSError as error:
            if not isinstance(error, FileExistsError) and find_code(error) not in REFUSED_CREATIONS:
                raise
            return self.read(name) == content
        return True

    def upload(self, file: Path, name: str) -> None:
        self._ask_bucket(self._there.put_file, str(file), self._join(name))

    def download(self, name: str, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._ask(self._there.get_file, self._join(name), str(file))

    def list_sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the bytes of each object whose name begins with `prefix`, in order of name.

        A name that would lead out of a folder on this machine (`a/../b`, `a//etc`) is left out.
        """
        folder, _, beginning = prefix.rpartition("/")
        found = self._ask_bucket(
            self._there.find, self._join(folder), prefix=beginning, detail=True
        )
        start = len(self._prefix.rstrip("/")) + 1
        sizes = {path[start:]: info["size"] for path, info in found.items()}
        usable = (name for name in sorted(sizes) if is_usable(name, self.address))
        return {name: sizes[name] for name in usable if name.startswith(prefix)}

    def read_all(self, names: list[str]) -> dict[str, bytes]:
        """Return the contents of objects; those that are gone are left out."""
        if not names:
            return {}
        paths = {self._join(name): name for name in names}
        found = self._ask(self._read_existing, list(paths))
        return {paths[path]: content for path, content in found.items()}

    def _read_existing(self, paths: list[str]) -> dict[str, bytes]:
        """Return the contents of what is there; raise what kept us from any other object."""
        found = self._there.cat(paths, on_error="return")
        for content in found.values():
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                raise content
        return {path: content for path, content in found.items() if isinstance(content, bytes)}

    def remove(self, name: str) -> None:
        """Remove an object if it is there."""
        try:
            self._ask(self._there.rm_file, self._join(name))
        except FileNotFoundError:
            return

    def _join(self, name: str) -> str:
        return f"{self._prefix.rstrip('/')}/{name}".rstrip("/")

    def _ask_bucket(self, request: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return the answer to a request that only fails for want of something if that is the
        bucket: gcsfs does not distinguish a bucket that is not there from an object.
        """
        try:
            return self._ask(request, *arguments, **options)
        except FileNotFoundError as error:
            if error.errno is not None:  # a local file
                raise
            raise UserError(
                "no such bucket; make it, or name another", "store", self.address
            ) from error

    def _ask(self, request: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return the answer to a request; ask again while the server is away."""
        deadline, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while True:
            try:
                return request(*arguments, **options)
            except Exception as error:  # each store's package has exceptions of its own
                if not is_network_error(error):
                    self._raise_in_words(error)
                if time.monotonic() + pause > deadline:
                    raise TransientError(
                        f"{name_setting('store', self.address)}: the server cannot be reached: "
                        f"{describe_error(error)}"
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def _raise_in_words(self, error: Exception) -> NoReturn:
        """Raise what the server says in one line; as it is what callers know by its type, and what
        this machine's own files raise.
        """
        is_here = isinstance(error, OSError) and error.errno is not None and not find_code(error)
        kinds = (UserError, FileNotFoundError, FileExistsError)
        if is_here or isinstance(error, kinds) or find_code(error) in REFUSED_CREATIONS:
            raise error
        settings = SETTINGS.get(self.address.partition("://")[0], "the credentials")
        raise UserError(
            f"{describe_error(error)}; look at the bucket's name, your "
            f"rights there, this machine's clock, and {settings}",
            "store",
            self.address,
        ) from error


@cache
def is_usable(name: str, address: str) -> bool:
    """Return whether an object can be a file of this machine; warn once of one that cannot."""
    try:
        check_path(name)
    except ValueError as refused:
        log.warning("%s: an object that is not ours is left alone: %s", address, refused)
        return False
    return True


def find_code(error: BaseException) -> str:
    """Return the code of S3 that s3fs turned into this error of Python, or nothing."""
    answer = getattr(error.__cause__ or error, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


class RemotePlace(Place):
    """The objects below an address, and this machine's copies of them."""

    def __init__(self, address: str, root: Path):
        super().__init__(root)
        self.address = address
        self._collected: set[str] = set()
        """Objects that an engine's workers wrote themselves."""

    @cached_property
    def _bucket(self) -> Bucket:
        return Bucket(self.address)

    def check_access(self) -> None:
        """Write, list and remove an object: without these rights nothing can be made.

        Creating it twice shows whether the server has conditional writes, without which two hosts
        could both complete a stage.
        """
        if not (self.root / HOME).exists():
            write_json(self.root / HOME, {"address": self.address})
        there, name = self._bucket.with_patience(0), f".access-{uuid4().hex}"
        there.list_sizes(name)
        is_first = there.create(name, name.encode())
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
        """Copy files of a complete folder to this machine, unless they are here. Each is compared
        with the SHA-256 of the manifest.
        """
        manifest, folder = self._read_attempt(name), self.root / name
        if manifest is None or (folder / MAKER).exists():
            return
        listed = [file for file in manifest["files"] if is_part(file["path"], parts)]
        damage = {file["path"]: self.find_damage(name, file) for file in listed}
        for path, why in damage.items():
            if why and (folder / path).exists():
                log.warning("%s is damaged (it %s): it is fetched again", folder / path, why)
        missing = [file for file in listed if damage[file["path"]]]
        self._download(name, f"{name}/{manifest['attempt']}", missing)
        write_json(folder / MANIFEST, manifest)
        self.mark_checked(name, missing)

    def _download(self, name: str, source: str, files: Sequence[Mapping[str, Any]]) -> None:
        """Copy files here; one that is not what its list says is never seen by a job."""

        def download(file: Mapping[str, Any]) -> None:
            with atomic_path(self.root / name / file["path"]) as part:
                try:
                    self._bucket.download(f"{source}/{file['path']}", part)
                except FileNotFoundError:
                    raise damage_error(self.address, name, f"{file['path']} is not there") from None
                if file["sha256"] and hash_file(part) != file["sha256"]:
                    raise damage_error(self.address, name, f"{file['path']} has another SHA-256")

        do_all(download, files)

    @contextmanager
    def hold(
        self, name: str, on_wait: Callable[[], None], kept: Sequence[str] = ()
    ) -> Iterator[None]:
        """Let one process of this machine make a folder. It begins with the newest checkpoint in
        the bucket, unless this machine began it; those that it writes into `kept` are uploaded.
        """
        folder, over = self.root / name, threading.Event()
        with exclusive_lock(folder.with_suffix(".lock"), on_wait):
            if self._read_attempt(name) is not None:
                yield
                return
            if not (folder / MAKER).exists():
                remove_copy(folder)
                self._download_checkpoints(name)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / MAKER).write_text(f"files-{uuid4().hex[:8]}", encoding="utf-8")
            uploader = threading.Thread(
                target=self._follow_checkpoints, args=[name, kept, over], daemon=True
            )
            if kept:
                uploader.start()
            try:
                yield
            finally:
                over.set()
                if kept:
                    uploader.join()

    def _download_checkpoints(self, name: str) -> None:
        """Bring what another host, or an earlier one, trained of a stage; nothing where that is not
        whole.
        """
        try:
            files = load_json(self._bucket.read(f"{name}/{PARTIAL}.json") or b"{}")
            for path in files:
                check_path(path)
            listed = [{"path": path, "sha256": sha256} for path, sha256 in files.items()]
            self._download(name, f"{name}/{PARTIAL}", listed)
        except (UserError, ValueError, TypeError, AttributeError) as damage:
            log.warning("%s is begun anew: %s", name, damage)
            remove_copy(self.root / name)

    def _follow_checkpoints(self, name: str, kept: Sequence[str], over: threading.Event) -> None:
        """Upload new checkpoints until it is over, and what was written last."""
        sent: dict[str, str] = {}
        is_last = False
        while not is_last:
            is_last = over.wait(LOOK_SECONDS)
            try:
                self._upload_checkpoints(name, kept, sent)
            except Exception as error:  # one that was just removed, a server that is away
                log.warning("%s: its checkpoint is not uploaded yet: %s", name, error)

    def _upload_checkpoints(self, name: str, kept: Sequence[str], sent: dict[str, str]) -> None:
        """Upload the checkpoints that are new, with the logs; then the list of them; then remove
        those that are gone. A log grows: it is not compared.
        """
        folder = self.root / name
        found = {
            path.relative_to(folder).as_posix(): path
            for part in kept
            for path in sorted((folder / part).glob(f"{CHECKPOINTS}/*"))
        }
        if found.keys() == sent.keys() or self.read_manifest(name) is not None:
            return
        logs = {path.name: path for path in folder.glob("*.jsonl")}
        new = {path: file for path, file in found.items() if path not in sent}
        do_all(
            lambda path: self._bucket.upload((new | logs)[path], f"{name}/{PARTIAL}/{path}"),
            new | logs,
        )
        hashes = {path: hash_file(file) for path, file in new.items()}
        listed = {path: sent.get(path) or hashes[path] for path in found}
        content = json.dumps({**dict.fromkeys(logs, ""), **listed}).encode()
        self._bucket.write(f"{name}/{PARTIAL}.json", content)
        do_all(lambda path: self._bucket.remove(f"{name}/{PARTIAL}/{path}"), sent.keys() - found)
        sent.clear()
        sent.update(listed)

    def collect(self, name: str) -> None:
        """Copy what the workers of an engine wrote to a held folder; it is not uploaded again."""
        start = self.locate(name).removeprefix(f"{self.address}/")
        objects = list(self._bucket.list_sizes(f"{start}/"))
        paths = [at.removeprefix(f"{start}/") for at in objects]
        self._download(name, start, [{"path": path, "sha256": ""} for path in paths])
        self._collected |= set(objects)

    def complete(
        self, name: str, manifest: Mapping[str, Any], extras: Iterable[str]
    ) -> Mapping[str, Any]:
        """Upload the files, then create the manifest, unless another host's is there; from then on
        nobody reads what it does not name, and that is removed.
        """
        folder = self.root / name
        attempt = (folder / MAKER).read_text(encoding="utf-8")
        start, sizes = (
            f"{name}/{attempt}",
            {file["path"]: file["size"] for file in manifest["files"]},
        )
        paths = [*sizes, *(path for path in extras if (folder / path).is_file())]
        new = [path for path in paths if f"{start}/{path}" not in self._collected]
        do_all(lambda path: self._bucket.upload(folder / path, f"{start}/{path}"), new)
        there = self._bucket.list_sizes(f"{start}/")
        if lost := [p for p, size in sizes.items() if there.get(f"{start}/{p}") != size]:
            raise TransientError(f"{start}/{lost[0]} is not in the bucket as it was made")
        named: Mapping[str, Any] = {**manifest, "attempt": attempt}
        content = json.dumps(named, indent=1, ensure_ascii=False).encode()
        stays = {f"{name}/{MANIFEST}", *(f"{start}/{path}" for path in paths)}
        if self._bucket.create(f"{name}/{MANIFEST}", content):
            write_json(folder / MANIFEST, named)
            (folder / MAKER).unlink()
            self.mark_checked(name, manifest["files"])
        else:
            log.warning("%s: another host was faster; what it made is used", name)
            remove_copy(folder)
            first = self._read_attempt(name)
            if first is None:
                raise TransientError(f"{name}: another host made it, and it was removed since")
            named, others = first, f"{name}/{first['attempt']}/"
            stays = {at for at in self._bucket.list_sizes(f"{name}/") if at.startswith(others)}
            stays.add(f"{name}/{MANIFEST}")
        do_all(self._bucket.remove, self._bucket.list_sizes(f"{name}/").keys() - stays)
        return named

    def list_folders(self) -> list[str]:
        folders = {"/".join(name.split("/")[:2]) for name in self._listing if name.count("/") > 1}
        return sorted(filter(is_stage_folder, folders))

    def measure(self, name: str) -> int:
        return sum(size for n, size in self._listing.items() if n.startswith(f"{name}/"))

    def remove(self, name: str) -> bool:
        self._bucket.remove(f"{name}/{MANIFEST}")
        do_all(self._bucket.remove, self._bucket.list_sizes(f"{name}/"))
        remove_copy(self.root / name)
        return True

    @cached_property
    def _listing(self) -> dict[str, int]:
        """Return the bytes of every object, listed once: a command looks at one moment."""
        return self._bucket.list_sizes()


def do_all(request: Callable[[Any], Any], items: Iterable[Any]) -> None:
    """Make requests side by side."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(request, items))


def open_remote_place(address: str, root: Path | None = None) -> RemotePlace:
    """Return the place of an address; a UserError names what is wrong with its spelling.

    `root` is this machine's part of it, by default one below AMAZON_ELECTRA_STATE.
    """
    scheme, _, rest = address.partition("://")
    if scheme not in SETTINGS:
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
