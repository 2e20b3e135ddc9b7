"""Objects below an address in s3:// or gs://: whole ones are put, got, listed and removed.

Every request is repeated while the server is away. Other failures are reported in one line.
"""

import logging
import time
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from amazon_electra.beam_jobs.core.errors import (
    TransientError,
    UserError,
    describe_error,
    is_network_error,
    name_setting,
)
from amazon_electra.flows.store.place import check_path

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


class Bucket:
    """The objects below one address; `patience` in seconds."""

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

    def copy(self, name: str, other: str) -> None:
        """Copy an object within the server; raise FileNotFoundError where it is gone."""
        self._ask(self._there.cp_file, self._join(name), self._join(other))

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
