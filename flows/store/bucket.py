"""The objects of a store in a bucket, `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`."""

import logging
import os
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from amazon_electra.beam_jobs.core.errors import (
    UserError,
    is_network_error,
    name_setting,
    refuse,
    require,
)
from amazon_electra.beam_jobs.core.files import atomic_path
from amazon_electra.beam_jobs.core.storage import hash_file, report_unreachable
from amazon_electra.flows.configuration.addresses import has_secret

log = logging.getLogger("amazon_electra")

T = TypeVar("T")
MANIFEST = "manifest.json"
PATIENCE_SECONDS = 300.0  # then Prefect tries the stage again
PAUSE_SECONDS = 5.0  # between two requests
REFUSED_CREATIONS = {"PreconditionFailed", "ConditionalRequestConflict"}  # codes of S3
CHECKPOINT = "checkpoint.zip"  # of a stage that is being made: the newest one, with the logs
LOOK_SECONDS = 2.0  # between two looks for new checkpoints
AT_ONCE = 8  # requests


class Bucket:
    """The objects below one address; requests are repeated while the server is away."""

    def __init__(self, address: str, patience: float = PATIENCE_SECONDS):
        from fsspec.core import url_to_fs

        scheme, _, rest = address.partition("://")
        path = "/".join(part for part in rest.split("/") if part)
        why = "it has a password or a signature in it; see Credentials in deploy/README.md"
        require(not has_secret(address), why, "store", scheme)
        is_known = scheme in ("s3", "gs") and path
        require(is_known, "give a folder, s3://BUCKET/… or gs://BUCKET/…", "store", address)
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # what fails is printed here, once
        self.address, self.patience = f"{scheme}://{path}", patience
        with refuse(ImportError, field="store", value=address):
            self._fs, prefix = url_to_fs(self.address, use_listings_cache=False)
        self._prefix = prefix.rstrip("/")

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, None where there is none."""
        try:
            return bytes(self._ask(self._fs.cat_file, self._join(name)))
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of this name; return whether it is ours."""
        try:
            self._ask(self._fs.pipe_file, self._join(name), content, mode="create")
        except OSError as error:
            if not isinstance(error, FileExistsError) and find_code(error) not in REFUSED_CREATIONS:
                raise
            return self.read(name) == content  # of a request whose answer was lost
        return True

    def upload(self, file: Path, name: str) -> None:
        self._ask(self._fs.put_file, str(file), self._join(name))

    def download(self, name: str, file: Path, sha256: str = "") -> None:
        """Copy an object to a file; UserError where it is not there or has another SHA-256."""
        again = f"remove the {MANIFEST} of its stage, and it is made again"
        with atomic_path(file) as part:
            with refuse(FileNotFoundError, message=f"{name} is not there; {again}"):
                self._ask(self._fs.get_file, self._join(name), str(part))
            is_same = not sha256 or hash_file(part) == sha256
            require(is_same, f"{name} has another SHA-256; {again}", "store", self.address)

    def list_sizes(self, folder: str = "") -> dict[str, int]:
        """Return the bytes of each object below a folder, without names that lead out of it."""
        found = self._ask(self._fs.find, self._join(folder), detail=True)
        names = {path.removeprefix(f"{self._prefix}/"): path for path in sorted(found)}
        return {name: found[path]["size"] for name, path in names.items() if is_inside(name)}

    def remove(self, name: str) -> None:
        """Remove an object if it is there."""
        with suppress(FileNotFoundError):
            self._ask(self._fs.rm_file, self._join(name))

    def check_access(self, writes: bool) -> None:
        """List an object, and write and remove it; UserError or TransientError where that fails."""
        there, name = Bucket(self.address, patience=0), f".access-{os.urandom(8).hex()}"
        with refuse(FileNotFoundError, message="no such bucket", field="store", value=self.address):
            there.list_sizes(name)
            if writes:  # two hosts may not both complete a stage
                created = there.create(name, name.encode()), there.create(name, b"again")
                there.remove(name)
                why = "the server has no conditional writes (If-None-Match)"
                require(created == (True, False), why, "store", self.address)

    def _join(self, name: str) -> str:
        return f"{self._prefix}/{name}".rstrip("/")

    def _ask(self, request: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return the answer to a request; ask again while the server is away."""
        deadline = time.monotonic() + self.patience - PAUSE_SECONDS
        while True:
            try:
                return request(*arguments, **options)
            except (FileNotFoundError, FileExistsError):
                raise
            except Exception as error:  # each store's package has exceptions of its own
                code = find_code(error)
                is_here = isinstance(error, OSError) and error.errno and not code
                if code in REFUSED_CREATIONS or is_here:  # callers know it, or it is our own file
                    raise
                if not is_network_error(error) or time.monotonic() > deadline:
                    with report_unreachable(name_setting("store", self.address)):
                        raise
            time.sleep(PAUSE_SECONDS)


def find_code(error: BaseException) -> str:
    """Return the code of S3 that s3fs turned into this error of Python, or nothing."""
    answer = getattr(error.__cause__ or error, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def is_inside(path: str) -> bool:
    """Return whether a name, of a file or an object, stays below its folder."""
    return not ("\\" in path or "\0" in path or {"", ".", ".."} & set(path.split("/")))


def do_all(request: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """Make requests at the same time; return their answers."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(request, items))


@contextmanager
def keep_checkpoints(
    bucket: Bucket, stage: str, folder: Path, kept: Sequence[str]
) -> Iterator[None]:
    """Begin with the newest checkpoint of any host, and upload those that a job writes into the
    folders `kept`, until another host has completed the stage.
    """
    if kept and not any(folder.glob("*/step-*")):
        restore_checkpoint(bucket, stage, folder, kept)
    packed, over = folder / f".{CHECKPOINT}", threading.Event()

    def follow() -> None:
        sent, is_last = set[Path](), False
        while not is_last:
            is_last = over.wait(LOOK_SECONDS)
            found = {path for one in kept for path in (folder / one).glob("step-*/*")}
            try:
                if found <= sent or bucket.read(f"{stage}/{MANIFEST}"):
                    continue
                with zipfile.ZipFile(packed, "w") as file:
                    for path in sorted({*found, *folder.glob("*.jsonl")}):
                        file.write(path, path.relative_to(folder))
                bucket.upload(packed, f"{stage}/{CHECKPOINT}")
                sent = found
            except Exception as error:  # one that was just removed, a server that is away
                log.warning("%s: its checkpoint is not uploaded yet: %s", stage, error)

    uploader = threading.Thread(target=follow, daemon=True)
    uploader.start()
    try:
        yield
    finally:
        over.set()
        uploader.join()
        packed.unlink(missing_ok=True)


def restore_checkpoint(bucket: Bucket, stage: str, folder: Path, kept: Sequence[str]) -> None:
    """Copy the uploaded checkpoint of a stage with its logs, whole or not at all."""
    with TemporaryDirectory(prefix=".", dir=folder) as place:
        try:
            bucket.download(f"{stage}/{CHECKPOINT}", Path(place, CHECKPOINT))
            with zipfile.ZipFile(Path(place, CHECKPOINT)) as file:
                file.extractall(Path(place, "new"))  # keeps all names inside
        except (UserError, zipfile.BadZipFile) as missing:
            log.info("%s begins anew: %s", stage, missing)
            return
        for path in Path(place, "new").iterdir():
            if path.name in kept or path.suffix == ".jsonl":
                shutil.rmtree(folder / path.name, ignore_errors=True)
                path.replace(folder / path.name)
