"""The objects of a store in a bucket, `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from amazon_electra.beam_jobs.core.errors import (
    TransientError,
    UserError,
    describe_error,
    is_network_error,
)
from amazon_electra.beam_jobs.core.files import atomic_path, hash_bytes, hash_file
from amazon_electra.flows.configuration.addresses import has_secret

log = logging.getLogger("amazon_electra")

T = TypeVar("T")
MANIFEST = "manifest.json"
PATIENCE_SECONDS = 300.0
"""How long a server that is away is asked again; Prefect then tries the stage again."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 10.0  # seconds
REFUSED_CREATIONS = {"PreconditionFailed", "ConditionalRequestConflict"}
"""Codes of S3 for an object that is there already, or is being created."""
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}
PARTIAL = "partial"
"""Folder of a stage's checkpoints in the bucket; `partial.json` lists them."""
LOOK_SECONDS = 2.0
"""Between two looks for new checkpoints."""
AT_ONCE = 8
"""Requests at the same time."""


class Bucket:
    """The objects below one address. Every request is repeated for `patience` seconds while the
    server is away; other failures are a UserError of one line.
    """

    def __init__(self, address: str, patience: float = PATIENCE_SECONDS):
        from fsspec.core import url_to_fs

        self.scheme, _, rest = address.partition("://")
        path = "/".join(part for part in rest.split("/") if part)
        if has_secret(address):
            raise UserError(
                f"it has a password or a signature in it; set {CREDENTIALS['s3']}, or "
                f"{CREDENTIALS['gs']}",
                "store",
                self.scheme,
            )
        if self.scheme not in CREDENTIALS or not path:
            raise UserError("give a folder, s3://BUCKET/… or gs://BUCKET/…", "store", address)
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # what fails is printed here, once
        self.address, self.patience = f"{self.scheme}://{path}", patience
        try:
            self._fs, self._prefix = url_to_fs(self.address, use_listings_cache=False)
        except ImportError as missing:
            raise UserError(f"{missing}", "store", address) from None

    @property
    def local_name(self) -> str:
        """Return the name of the folder of a machine's part of the store."""
        slug = "".join(c if c.isalnum() else "-" for c in self.address.lower())
        return f"{slug[:40].strip('-')}-{hash_bytes(self.address.encode())[:8]}"

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, None where there is none."""
        try:
            content: bytes = self._ask(self._fs.cat_file, self._join(name))
        except FileNotFoundError:
            return None
        return content

    def read_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of objects; those that are gone are left out."""
        found = dict(zip(names, do_all(self.read, names), strict=True))
        return {name: content for name, content in found.items() if content is not None}

    def write(self, name: str, content: bytes) -> None:
        self._ask(self._fs.pipe_file, self._join(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of this name; return whether it is ours.

        If an answer is lost, the second request is refused: so what is there is read.
        """
        try:
            self._ask(self._fs.pipe_file, self._join(name), content, mode="create")
        except OSError as error:
            if not isinstance(error, FileExistsError) and find_code(error) not in REFUSED_CREATIONS:
                raise
            return self.read(name) == content
        return True

    def upload(self, file: Path, name: str) -> None:
        self._ask(self._fs.put_file, str(file), self._join(name))

    def download(self, name: str, file: Path, sha256: str) -> None:
        """Copy an object to a file, unless it is not there or has another SHA-256 (empty: any);
        ValueError then.
        """
        with atomic_path(file) as part:
            try:
                self._ask(self._fs.get_file, self._join(name), str(part))
            except FileNotFoundError:
                raise ValueError(f"{name} is not there") from None
            if sha256 and hash_file(part) != sha256:
                raise ValueError(f"{name} has another SHA-256")

    def list_sizes(self, folder: str = "") -> dict[str, int]:
        """Return the bytes of each object below a folder, in order of name.

        A name that would lead out of a folder on this machine (`a/../b`, `a//etc`) is left out.
        """
        found = self._ask(self._fs.find, self._join(folder), detail=True)
        start = len(self._prefix.rstrip("/")) + 1
        sizes = {path[start:]: info["size"] for path, info in sorted(found.items())}
        return {name: size for name, size in sizes.items() if is_inside(name)}

    def remove(self, name: str) -> None:
        """Remove an object if it is there."""
        try:
            self._ask(self._fs.rm_file, self._join(name))
        except FileNotFoundError:
            return

    def check_access(self, writes: bool) -> None:
        """List an object, and write and remove it; UserError or TransientError where that fails.

        Creating it twice shows whether the server has conditional writes, without which two hosts
        could both complete a stage.
        """
        there, name = Bucket(self.address, patience=0), f".access-{os.urandom(8).hex()}"
        try:
            there.list_sizes(name)
            is_first = not writes or there.create(name, name.encode())
            is_second = writes and there.create(name, b"again")
        except FileNotFoundError:
            raise UserError("no such bucket", "store", self.address) from None
        if writes:
            there.remove(name)
        if not is_first or is_second:
            raise UserError(
                "the server has no conditional writes (If-None-Match)", "store", self.address
            )

    def _join(self, name: str) -> str:
        return f"{self._prefix.rstrip('/')}/{name}".rstrip("/")

    def _ask(self, request: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return the answer to a request; ask again while the server is away. What callers know by
        its type, and what this machine's own files raise, is raised as it is.
        """
        deadline, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while True:
            try:
                return request(*arguments, **options)
            except Exception as error:  # each store's package has exceptions of its own
                is_here = isinstance(error, OSError) and error.errno and not find_code(error)
                known = FileNotFoundError, FileExistsError
                if find_code(error) in REFUSED_CREATIONS or is_here or isinstance(error, known):
                    raise
                if not is_network_error(error):
                    raise UserError(
                        f"{describe_error(error)}; look at the bucket's name, your rights there, "
                        f"this machine's clock, and {CREDENTIALS[self.scheme]}",
                        "store",
                        self.address,
                    ) from error
                if time.monotonic() + pause > deadline:
                    about = f"`store {self.address}`: the server cannot be reached"
                    raise TransientError(f"{about}: {describe_error(error)}") from error
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)


def find_code(error: BaseException) -> str:
    """Return the code of S3 that s3fs turned into this error of Python, or nothing."""
    answer = getattr(error.__cause__ or error, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def is_inside(path: str) -> bool:
    """Return whether a name, of a file or an object, stays below its folder."""
    parts = path.split("/")
    return not ("\\" in path or "\0" in path or {"", ".", ".."} & set(parts))


def do_all(request: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """Make requests at the same time; return their answers."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(request, items))


def download_checkpoints(bucket: Bucket, name: str, folder: Path) -> None:
    """Copy the newest checkpoint of a stage that any host has uploaded; ValueError where that is
    not whole.
    """
    listed = bucket.read(f"{name}/{PARTIAL}.json")
    files = TypeAdapter(dict[str, str]).validate_json(listed) if listed else {}
    if outside := [path for path in files if not is_inside(path)]:
        raise ValueError(f"{outside[0]!r} leads out of the folder")
    start = f"{name}/{PARTIAL}"
    do_all(lambda p: bucket.download(f"{start}/{p}", folder / p, files[p]), files)


@contextmanager
def upload_checkpoints(
    bucket: Bucket, name: str, folder: Path, kept: Sequence[str]
) -> Iterator[None]:
    """Upload the checkpoints that a job writes into the folders `kept` while the block lasts, and
    what it has written last, unless another host has completed the stage.
    """
    over, sent = threading.Event(), dict[str, str]()

    def follow() -> None:
        is_last = False
        while not is_last:
            is_last = over.wait(LOOK_SECONDS)
            try:
                upload_new(bucket, name, folder, kept, sent)
            except Exception as error:  # one that was just removed, a server that is away
                log.warning("%s: its checkpoint is not uploaded yet: %s", name, error)

    uploader = threading.Thread(target=follow, daemon=True)
    uploader.start()
    try:
        yield
    finally:
        over.set()
        uploader.join()


def upload_new(
    bucket: Bucket, name: str, folder: Path, kept: Sequence[str], sent: dict[str, str]
) -> None:
    """Upload the checkpoints that are not `sent`, with the logs; then the list of them; then remove
    those that are gone. A log grows, so the list has no SHA-256 of it.
    """
    found = {
        path.relative_to(folder).as_posix(): path
        for part in kept
        for path in sorted((folder / part).glob("step-*/*"))
    }
    if found.keys() == sent.keys() or bucket.read(f"{name}/{MANIFEST}") is not None:
        return
    logs = {path.name: path for path in folder.glob("*.jsonl")}
    new = {path: file for path, file in found.items() if path not in sent}
    start = f"{name}/{PARTIAL}"
    do_all(lambda p: bucket.upload((new | logs)[p], f"{start}/{p}"), new | logs)
    hashes = {path: hash_file(file) for path, file in new.items()}
    listed = {path: sent.get(path) or hashes[path] for path in found}
    content = dict.fromkeys(logs, "") | listed
    bucket.write(f"{start}.json", json.dumps(content).encode())
    do_all(lambda p: bucket.remove(f"{start}/{p}"), sent.keys() - found)
    sent.clear()
    sent.update(listed)
